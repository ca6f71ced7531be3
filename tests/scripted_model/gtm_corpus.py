"""What the agents of the go-to-market story write: a small corpus with two categories, two verticals and two titles, in two runs.
The companies and figures are invented, and no document says the same as another: questions about it have known answers.
"""

from __future__ import annotations

CATEGORIES = {
    "security": """# Security services

## Summary
Managed security is bought when an attack, an audit or an insurer makes it urgent. Most buyers of this size cannot staff a night shift, so they rent one. Suppliers differ less in detection than in what they are allowed to do without asking.

## Services
Managed detection and response watches endpoints, identities and cloud accounts around the clock and isolates a machine when it must. Vulnerability management ranks what to patch first. A virtual CISO writes the policy and sits in the audit. Backup that cannot be altered is sold beside it, and is what recovery depends on.

## Pricing
Detection is priced per endpoint and month, between 9 and 22 dollars in the offers we compared in 2026. Retainers for incident response cost 18,000 to 40,000 dollars a year and are refunded as credit by two of five suppliers. Log storage is where bills grow: a year of retention doubled the price in three of nine contracts.

## Buyers
The security lead starts it, finance decides it, and the insurer sets the date. Companies with fewer than 500 people ask for one invoice; larger ones ask who may pull the plug.

## Competitive landscape
Regional integrators win on presence, the big platforms on price, and specialist response firms on authority after an incident. We lose where a platform licence is already paid for, and win where nobody can say who acts at three in the morning.

## Proof points
- The median time to contain an intrusion fell from 21 hours to 4 among 63 clients that moved to managed response (Harbour Survey, 2025).
- 7 of 10 cyber insurers asked for managed detection before renewing in 2026 (Brokers' Panel, 2026).
""",
    "cloud": """# Cloud services

## Summary
Cloud advice is bought when the bill surprises somebody. The move itself is rarely the problem any more; knowing what each team spends is. Suppliers differ in whether they are paid for spending less.

## Services
Cost management tags every resource, shows each team its own bill and buys commitments ahead. Landing zones set accounts, identities and guard rails before the first workload moves. Managed operations patch, watch and restore. Exit planning says what leaving would take.

## Pricing
Cost management is sold as a share of savings, 15 to 25 percent for the first year, or as a flat fee from 2,500 dollars a month. Landing zones are fixed projects of 40,000 to 120,000 dollars. Egress charges are negotiable from about 400 terabytes a year.

## Buyers
Engineering opens the account, finance finds the invoice, and procurement is asked to repair it. The one who pays and the one who spends seldom share a meeting.

## Competitive landscape
Hyperscalers give advice away to keep the spend. Software for cost dashboards is cheap and changes nothing without somebody who acts. We win where the savings are shared and lose where a reseller already holds the contract.

## Proof points
- Tagging alone cut unexplained spend from 31 percent to 9 percent in two quarters at 18 mid-size firms (Ledger Study, 2025).
- Commitments bought a quarter too early cost more than they saved in 5 of 18 cases (Ledger Study, 2025).
""",
}

HORIZONTALS = {
    "buyer_journey": """# The buyer journey

## Summary
A decision begins with an event and ends with a signature that nobody wants to be alone with. Between them lie about five months and seven people. Deals are lost to no decision twice as often as to a competitor.

## What starts it
Half of the journeys begin with a renewal date, a quarter with an incident, the rest with a new person in charge. In security the trigger is most often an insurer's questionnaire, and it arrives ninety days before renewal.{cloud_trigger}

## Who joins when
The first three weeks belong to one person. Finance joins when a number exists, legal when a draft exists, and the board when something has gone wrong before. In security the second person is nearly always the insurance broker.

## Where it stalls
Between the shortlist and the pilot. The comparison is finished, and nobody owns the next step. A named owner and a date shortened this gap from 47 to 19 days in 22 deals we followed.

## Proof points
- 38 percent of evaluations ended without any purchase (Journey Log, 2025).
- A second executive sponsor doubled the rate of signature (Journey Log, 2025).
""",
    "channels_competitive": """# Channels and competition

## Summary
Clients meet us through brokers, accountants and former colleagues, in that order. We compete with doing nothing, with the supplier that is there, and only then with another advisor. Where three advisors compete, the one who names a price band first is remembered.

## Channels
Insurance brokers introduce one deal in four. Accounting firms introduce fewer and larger ones. Paid search brings students and competitors.

## Competitive landscape
Other advisors publish rankings and hide who pays them. Resellers know the price and not the alternative. Large consultancies write better documents and leave before the contract is signed.

## Where we win and lose
We win when the client has been burnt by a reseller, and when two departments disagree. We lose when procurement was told to save eight percent by Friday.

## Proof points
- Deals that came through a broker closed in 71 days, others in 118 (Channel Count, 2026).
""",
    "customer_expansion": """# Expansion

## Summary
Clients buy again eleven months after the first contract, if somebody calls in month nine. The second purchase is usually the neighbour of the first, not the next on our list. A quarterly review that shows one number is worth more than one that shows twelve.

## What comes next
After security, clients buy backup and then network. After cloud cost work, they renegotiate licences. After a contact center they ask about analytics, and seldom buy it.

## Signals
A new site, a new executive, a lost employee with a key, an acquisition. The strongest signal is a support ticket that was answered by a human on a Sunday.

## Reviews
Thirty minutes, one page, the number that was promised. Bring the contract's end date, and leave with the next one.

## Proof points
- 44 percent of clients bought a second service within 18 months; of those with a review in month nine, 63 percent (Renewal Book, 2025).
""",
    "messaging_positioning": """# Messaging and positioning

## Summary
We say what changes for the reader, then what it costs, then who we are. We are paid by the supplier that is chosen, and say so in the first meeting. We do not claim to be independent of money; we claim that every supplier pays the same.

## Messaging framework
First: what happens if nothing changes. Second: the two options a careful person would compare. Third: the one thing that decides between them. The offer comes last, and is one page.

## Claims we do not make
We do not promise savings before we have seen an invoice. We do not rank suppliers in public. We do not say partner when we mean vendor.

## Positioning
For companies without a team that buys technology all year, we are the shortlist that can be defended in front of a board.

## Proof points
- Openings that named a cost of waiting were answered by 14 percent, those that named a product by 3 (Letter Test, 2026).
""",
    "gtm_synthesis": """# Synthesis

## Summary
Begin with brokers and renewal dates, because there the event and the date are known. Lead with the cost of waiting, bring two options, and name the owner of the next step. What would prove us wrong is a quarter in which broker deals no longer close faster.

## What comes first
Ninety days before an insurance renewal is the one moment that is both urgent and predictable. Everything else waits for it.

## What is left out
Paid search, public rankings, and companies with a buying team of their own.

## What would prove us wrong
If introductions by brokers close no faster than others for two quarters, the channel is a habit and not an advantage.
""",
}
CLOUD_TRIGGER = (
    " In cloud it is an invoice that is a third higher than the month before, and it is found by finance and not by engineering."
)

VERTICALS = {
    "healthcare": """# Healthcare

## Summary
Hospitals and clinics run on systems that may not stop, with budgets that were fixed two years ago. Privacy law is known to everybody and feared by few; downtime is feared by all. The buyer is a committee, and the committee meets monthly.

## Pressures
An hour without the electronic record costs a 300-bed hospital about 64,000 dollars in diverted patients and overtime (Downtime Ledger, 2025). Margins were 1.4 percent in the median hospital in 2025. Nurses write on paper within eleven minutes of an outage, and typing it in again takes nine days.

## Regulation
HIPAA's security rule asks for a risk analysis that is written and current; four of five settlements in 2025 named its absence. State breach laws set the clock at 30 to 60 days.

## Security in hospitals
Medical devices cannot be patched by the hospital, so they are fenced off. Ransomware arrives through a vendor with remote access more often than through email. Response teams must know which machine keeps a patient alive before they isolate it.

## Buying
Capital budgets close in September. The compliance officer can stop a purchase and never starts one. Group purchasing organisations set the price, and exceptions take a letter from a physician.

## Words
They say patients, not customers; downtime procedures, not business continuity; the record, not the database.
""",
    "financial_services": """# Financial services

## Summary
Banks, insurers and advisers are examined, and buy what an examiner will ask about. Third-party risk is the subject of the year. A vendor that cannot answer a questionnaire of 240 lines does not reach the shortlist.

## Pressures
Examiners ask for the exit plan of every critical supplier. Community banks spend 11 percent of their technology budget on answering questionnaires (Exam Notes, 2026). Card fraud moves faster than the change board, which meets on Thursdays.

## Regulation
The interagency guidance on third parties expects due diligence, a contract with audit rights and a plan to leave. European clients add DORA, which wants incident reports within four hours. Records are kept for seven years.

## Cloud in banks
Core systems stay where they are; analytics and document work move. Concentration risk is the question: what happens if one hyperscaler fails in the region. Encryption keys stay with the bank, and the supplier must show that it cannot read them.

## Buying
The risk committee decides, and the vendor manager writes the agenda. Budgets open in January, and nothing is signed in the last two weeks of a quarter.

## Words
They say examiner, not auditor; third party, not partner; control, not feature.
""",
}

TITLES = {
    "cfo_cluster": """# Finance leaders

## Summary
A CFO buys certainty about a number. They approve what they can explain to a board in two sentences, and delay what they cannot. They trust a range more than a figure.

## What they answer for
Cash, covenants and surprises. A forecast that was missed twice is remembered longer than a project that failed.

## What they fear
A cost that grows by itself, a contract that renews in silence, and being the last to know. They fear the word unlimited in either direction.

## Questions they ask
What does it cost if we wait a year? Who else our size has signed this? What is the smallest first step? Which line of the budget does it come from?

## How to write to them
Five sentences, one number with its range, no attachment. The first line says what changes in which quarter.
""",
    "security_leadership": """# Security leaders

## Summary
A CISO buys time and evidence. They answer for what has not happened yet, to people who ask only when it has. They respect suppliers who say what they do not see.

## What they answer for
The risk register, the audit and the night of the incident. Their budget is argued once a year and spent in the first week of an attack.

## What they fear
A tool that nobody watches, an alert that was closed without being read, and a sentence in the newspaper that begins with had been warned.

## Questions they ask
What may you do without asking me? How do I get my data out? Show me an incident you missed. Who reads the alert at night, and in which country?

## How to write to them
Name the attack path and the control. Offer a test that can fail. Never write peace of mind.
""",
}


def playbook(
    title: str,
    summary: str,
    pains: list[str],
    message: str,
    proofs: list[str],
    objections: list[tuple[str, str]],
    call: list[str],
) -> str:
    parts = [f"# {title}", "## Summary", summary, "## Pain points", "\n".join(f"- {p}" for p in pains), "## Messaging", message]
    parts += ["## Proof points", "\n".join(f"- {p}" for p in proofs), "## Objections"]
    parts += ["\n".join(f"- {said} {answer}" for said, answer in objections), "## First call", "\n".join(f"- {c}" for c in call)]
    return "\n\n".join(parts) + "\n"


PLAYBOOKS = {
    "healthcare.cfo_cluster": playbook(
        "Playbook: finance leaders in healthcare",
        "The finance chief of a hospital lives on a margin of 1.4 percent and cannot absorb a lost week. Downtime is the number they do not have. Lead with the cost of one hour, and let them do the multiplication.",
        [
            "Diverted patients appear in no budget line until the quarter is over.",
            "Capital budgets close in September, and security asks in November.",
            "Overtime for typing nine days of paper is booked as staffing.",
        ],
        "Open with: what does your plan assume an hour without the record costs? Go on with the range from peers, then with the smallest step that fits an operating budget.",
        [
            "An hour without the electronic record costs a 300-bed hospital about 64,000 dollars (Downtime Ledger, 2025).",
            "Margins were 1.4 percent in the median hospital in 2025.",
        ],
        [
            ("We have insurance.", "It pays for the breach, and not for the patients who went elsewhere."),
            ("Next fiscal year.", "The first step costs less than one hour, and fits an operating budget."),
        ],
        ["Which systems stopped last, and for how long?", "Who signs an exception outside the purchasing group?"],
    ),
    "healthcare.security_leadership": playbook(
        "Playbook: security leaders in healthcare",
        "The security lead of a hospital protects devices they may not patch. Vendors with remote access are the open door. Lead with who may isolate what, and when a physician is asked first.",
        [
            "Infusion pumps run on systems from another decade.",
            "Forty vendors hold remote access, and nobody has the list.",
            "Isolation at the wrong bed is worse than the attack.",
        ],
        "Open with: which machines may a response team never isolate? Go on with the map of vendors, then with a drill on one ward.",
        [
            "Ransomware arrives through a vendor with remote access more often than through email.",
            "Four of five HIPAA settlements in 2025 named a missing risk analysis.",
        ],
        [
            ("Our vendor manages the devices.", "Then their access is your exposure; ask for the log of the last month."),
            ("We are too small for a response team.", "You rent the night shift, not the team."),
        ],
        ["When was the last drill on a live ward?", "Who decides about a device at a bed?"],
    ),
    "healthcare.cfo_cluster.security": playbook(
        "Playbook: security for finance leaders in healthcare",
        "For the finance chief of a hospital, security is the price of not closing the emergency department. The insurer has set the date. Lead with renewal in ninety days, and with a fixed monthly price per bed.",
        [
            "The insurer's questionnaire asks for managed detection, and the answer changes the premium.",
            "Incident response without a retainer is billed by the hour in the worst week of the year.",
            "A year of log retention doubled the price in three of nine contracts.",
        ],
        "Open with: your renewal questionnaire arrives in ninety days, and question 14 decides the premium. Go on with a price per bed and month, then with what is not included.",
        [
            "7 of 10 cyber insurers asked for managed detection before renewing in 2026 (Brokers' Panel, 2026).",
            "Retainers for incident response cost 18,000 to 40,000 dollars a year.",
        ],
        [
            ("IT has a tool for that.", "A tool nobody watches at night is answered with no on question 14."),
            ("Why per bed?", "Because it is the number your board already knows."),
        ],
        ["What did the premium do at the last renewal?", "Who filled in the questionnaire, and who checked it?"],
    ),
    "healthcare.security_leadership.security": playbook(
        "Playbook: security for security leaders in healthcare",
        "The security lead of a hospital needs hands at three in the morning that know which machine keeps a patient alive. Detection is not the gap; authority is. Lead with a written order of isolation, agreed with the medical director.",
        [
            "Response teams isolate by risk score, and a ventilator has a high one.",
            "The night shift is one person who also answers the telephone.",
            "Logs of medical devices go to the manufacturer, not to the hospital.",
        ],
        "Open with: who signed the order in which wards are isolated? Go on with a drill that is allowed to fail, then with what managed response may do alone.",
        [
            "The median time to contain an intrusion fell from 21 hours to 4 among 63 clients that moved to managed response (Harbour Survey, 2025).",
            "Medical devices cannot be patched by the hospital, so they are fenced off.",
        ],
        [
            ("We cannot let outsiders isolate machines.", "Then write down which ones they may, and start with the offices."),
            ("We tried a managed service and it sent tickets.", "Ask for the last three intrusions they ended without asking."),
        ],
        ["What happened in the last twenty minutes of your last incident?", "Which wards can be cut off without a physician?"],
    ),
    "financial_services.cfo_cluster": playbook(
        "Playbook: finance leaders in financial services",
        "The finance chief of a bank is asked by examiners about suppliers they never chose. Questionnaires eat a tenth of the technology budget. Lead with the cost of answering, and with one evidence file for all of them.",
        [
            "11 percent of the technology budget goes into answering questionnaires.",
            "Contracts renew in silence in the last two weeks of a quarter, when nobody may sign.",
            "An exit plan that was never priced is a liability without a number.",
        ],
        "Open with: what did it cost you to answer examiners last year? Go on with an evidence file that is kept once, then with the price of leaving each supplier.",
        [
            "Community banks spend 11 percent of their technology budget on answering questionnaires (Exam Notes, 2026).",
            "38 percent of evaluations ended without any purchase (Journey Log, 2025).",
        ],
        [
            ("Compliance handles that.", "They answer it, and your budget pays for it."),
            ("Our core provider does this for us.", "Ask them for the exit price, in writing."),
        ],
        ["Which supplier would you leave if it were free?", "When does the risk committee meet next?"],
    ),
    "financial_services.security_leadership": playbook(
        "Playbook: security leaders in financial services",
        "The security lead of a bank is judged by the evidence and not by the absence of incidents. DORA wants a report within four hours. Lead with the clock, and with a rehearsal of the first report.",
        [
            "The change board meets on Thursdays, and fraud does not wait.",
            "A questionnaire of 240 lines decides who may be bought.",
            "Audit rights stand in the contract and have never been used.",
        ],
        "Open with: who writes the first report, and from which screen? Go on with a rehearsal on a Friday evening, then with what each supplier delivers into it.",
        [
            "DORA wants incident reports within four hours.",
            "The interagency guidance on third parties expects due diligence, a contract with audit rights and a plan to leave.",
        ],
        [
            ("We report through our parent.", "The clock starts with you, and not with them."),
            ("Examiners have never asked.", "They ask after the first bank that is late."),
        ],
        ["How long did your last first report take?", "Which audit right have you used?"],
    ),
    "financial_services.cfo_cluster.cloud": playbook(
        "Playbook: cloud for finance leaders in financial services",
        "The finance chief of a bank sees one cloud invoice and forty teams. Unexplained spend is the finding an examiner writes down. Lead with the share of the bill that nobody owns, and with a fee that is paid out of savings.",
        [
            "31 percent of the bill belongs to nobody until it is tagged.",
            "Commitments bought a quarter too early cost more than they saved.",
            "Egress charges were signed without a volume.",
        ],
        "Open with: which share of your cloud bill has no owner? Go on with tagging in two quarters, then with commitments only behind it.",
        [
            "Tagging alone cut unexplained spend from 31 percent to 9 percent in two quarters at 18 mid-size firms (Ledger Study, 2025).",
            "Cost management is sold as a share of savings, 15 to 25 percent for the first year.",
        ],
        [
            ("Engineering is on it.", "Ask which team's bill went down last month."),
            ("We pay for a dashboard.", "A dashboard shows the bill, and nobody acts on it."),
        ],
        ["Who opens the invoice, and what do they do then?", "Which commitment ends this year?"],
    ),
    "financial_services.security_leadership.cloud": playbook(
        "Playbook: cloud for security leaders in financial services",
        "The security lead of a bank must show that a supplier cannot read what it stores. Concentration in one region is the question of the year. Lead with who holds the keys, and with a failover that was really run.",
        [
            "Keys are held by the supplier that stores the data.",
            "Nobody has failed over to the second region since it was drawn.",
            "Landing zones were set up by the project that needed them first.",
        ],
        "Open with: if the region fails on Friday, what is back on Monday? Go on with keys held by the bank, then with guard rails before the next workload.",
        [
            "Encryption keys stay with the bank, and the supplier must show that it cannot read them.",
            "Landing zones are fixed projects of 40,000 to 120,000 dollars.",
        ],
        [
            ("The hyperscaler is certified.", "The certificate is theirs; the concentration is yours."),
            ("We will add guard rails later.", "Later is forty accounts from now."),
        ],
        ["When did you last fail over for real?", "Who can turn a key off?"],
    ),
}

POINTS = {  # of twenty, five times: relevance, evidence, clarity, actionability, differentiation
    "healthcare.security_leadership": (15, 16, 14, 15, 14),
    "financial_services.security_leadership.cloud": (12, 10, 11, 12, 10),
}
USUAL = (18, 17, 17, 18, 16)

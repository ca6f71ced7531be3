"""What the tools share. Modules here import each other, never a tool."""

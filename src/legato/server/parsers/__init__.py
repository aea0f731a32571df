"""What a model writes -> what a message holds: reasoning, content and tool calls, as the text comes."""

"""What proposes candidates."""

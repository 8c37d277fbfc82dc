"""What the HTML pages are made of. All text is escaped; only the functions here make markup."""

"""What counted outcomes show of a mechanism nobody needs to look into."""

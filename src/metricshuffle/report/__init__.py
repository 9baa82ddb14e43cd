"""HTML pages, reports and charts. Every number they show is computed elsewhere."""

"""The chapters of the demo's report: what each draws and tabulates. Their words are in templates/report, under the same names."""

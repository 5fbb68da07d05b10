// Package report shows what package age has measured: as tables on a terminal, as JSON, as one HTML
// page that needs nothing else, and as a list of what has stayed as it was on the first day.
package report

package report

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"holdfast/bench/age"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"brief": brief, "spread": spread}).Parse(pageText))

// brief is what comes before the brackets of a cell, spread what is in them.
func brief(cell string) string {
	before, _, _ := strings.Cut(cell, " (")
	return before
}

func spread(cell string) string {
	_, after, _ := strings.Cut(cell, " (")
	return strings.TrimSuffix(after, ")")
}

// section is a measure on the page.
type section struct {
	ID    string
	Plot  plot
	Table Table
	Best  []string
}

// HTML writes one page with all plots and tables, which needs no other file and no script.
func HTML(w io.Writer, r *age.Result) error {
	tables := map[string]Table{}
	for _, t := range Tables(r) {
		tables[t.ID] = t
	}
	var sections []section
	for _, m := range r.Measures {
		if p, ok := newPlot(r, m); ok {
			sections = append(sections, section{m.ID, p, tables[m.ID], best(r, m)})
		}
	}
	return page.Execute(w, struct {
		*age.Result
		Story    string
		Sections []section
	}{r, Story(r), sections})
}

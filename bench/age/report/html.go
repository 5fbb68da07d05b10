package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"holdfast/bench/age"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"brief": brief, "spread": spread, "plural": plural}).Parse(pageText))

// brief is what comes before the brackets of a cell, spread what is in them.
func brief(cell string) string {
	before, _, _ := strings.Cut(cell, " (")
	return before
}

func spread(cell string) string {
	_, after, _ := strings.Cut(cell, " (")
	return strings.TrimSuffix(after, ")")
}

// plural is a heading over several of what the noun names.
func plural(noun string) string {
	if noun == "" {
		return ""
	}
	return strings.ToUpper(noun[:1]) + noun[1:] + "s"
}

// section is a measure on the page.
type section struct {
	ID    string
	Plot  plot
	Table Table
	Best  []string
}

// part is a result on the page.
type part struct {
	*age.Result
	Story    string
	Sections []section
}

// HTML writes one page with all plots and tables of the results, which needs no other file and no script.
func HTML(w io.Writer, results ...*age.Result) error {
	var parts []part
	for i, r := range results {
		parts = append(parts, newPart(i, r))
	}
	return page.Execute(w, parts)
}

func newPart(at int, r *age.Result) part {
	tables := map[string]Table{}
	for _, t := range Tables(r) {
		tables[t.ID] = t
	}
	var sections []section
	for _, m := range r.Measures {
		if p, ok := newPlot(r, m); ok {
			id := m.ID
			if at > 0 { // another result may have a measure of this name
				id += fmt.Sprint("-", at+1)
			}
			sections = append(sections, section{id, p, tables[m.ID], best(r, m)})
		}
	}
	return part{r, Story(r), sections}
}

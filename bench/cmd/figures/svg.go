package main

import (
	"bytes"
	"text/template"
)

// svg is the text of a picture. What is drawn has classes, which the style colours for light and for
// dark pages; class a is Holdfast's.
var svg = template.Must(template.New("").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" width="{{.Width}}" height="{{.Height}}" role="img" aria-label="{{html .Title}}">
<style>
svg { font: 13px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
.title { font-size: 16px; font-weight: 600 } .name { font-weight: 600 } .caption { font-size: 11px } path { fill: none; stroke-width: 2.5 }
.page { fill: #ffffff } text { fill: #1f2328 } .number { fill: #59636e } .caption { fill: #818b98 } .grid { stroke: #d1d9e0 }
{{range .Colours}}path.{{.Class}}, circle.{{.Class}} { stroke: {{.Light}} } circle.{{.Class}}, rect.{{.Class}}, text.{{.Class}} { fill: {{.Light}} }
{{end}}@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } text { fill: #f0f6fc } .number { fill: #9198a1 } .caption { fill: #6e7681 } .grid { stroke: #2f353d }
{{range .Colours}}path.{{.Class}}, circle.{{.Class}} { stroke: {{.Dark}} } circle.{{.Class}}, rect.{{.Class}}, text.{{.Class}} { fill: {{.Dark}} }
{{end}}}
</style>
<rect class="page" width="{{.Width}}" height="{{.Height}}" rx="6"/>
<text class="title" x="20" y="34">{{html .Title}}</text>
{{range .Lines}}<line class="grid" x1="{{.X1}}" y1="{{.Y1}}" x2="{{.X2}}" y2="{{.Y2}}"/>
{{end}}{{range .Bars}}<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" rx="2"/>
{{end}}{{range .Paths}}<path class="{{.Class}}" d="{{.D}}"/>
{{$class := .Class}}{{range .Dots}}<circle class="{{$class}}" cx="{{.X}}" cy="{{.Y}}" r="3"/>
{{end}}{{end}}{{range .Texts}}<text class="{{.Class}}" text-anchor="{{.Anchor}}" x="{{.X}}" y="{{.Y}}">{{html .Text}}</text>
{{end}}<text class="caption" x="20" y="{{.Bottom}}">{{html .Caption}}</text>
</svg>
`))

// colour is that of the marks of a class, on a light and on a dark page.
type colour struct{ Class, Light, Dark string }

// Colours are those of all classes.
func (picture) Colours() []colour {
	return []colour{
		{"a", "#0969da", "#58a6ff"}, {"b", "#cf222e", "#ff7b72"}, {"c", "#bc4c00", "#ffa657"},
		{"d", "#8250df", "#d2a8ff"}, {"e", "#1a7f37", "#56d364"},
	}
}

// Width is that of each picture, Bottom the line of its caption.
func (picture) Width() int { return width }

func (p picture) Bottom() int { return p.Height - 14 }

func render(p picture) ([]byte, error) {
	p.layout()
	var b bytes.Buffer
	err := svg.Execute(&b, p)
	return b.Bytes(), err
}

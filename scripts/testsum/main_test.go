package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestSummarize(t *testing.T) {
	tests := []struct {
		name                    string
		events                  string
		passed, failed, skipped int
		want, unwanted          string // parts of what is printed
	}{
		{
			name: "pass, skip and fail, subtests not counted",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: needs root\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC/sub","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestC/sub"}
{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p","Elapsed":1}
`,
			passed: 1, failed: 1, skipped: 1,
			want: "needs root", unwanted: "quiet",
		},
		{
			name: "the output of a failing subtest is shown",
			events: `{"Action":"output","Package":"p","Test":"TestC/sub","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
`,
			failed: 1, want: "loud",
		},
		{
			name: "the output of its passing sibling is not",
			events: `{"Action":"output","Package":"p","Test":"TestC/good","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestC/good"}
{"Action":"output","Package":"p","Test":"TestC/bad","Output":"loud\n"}
{"Action":"fail","Package":"p","Test":"TestC/bad"}
{"Action":"fail","Package":"p","Test":"TestC"}
`,
			failed: 1, want: "loud", unwanted: "quiet",
		},
		{
			name: "a package that does not build is one failure",
			events: `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: undefined: x\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","Elapsed":0,"FailedBuild":"p [p.test]"}
`,
			failed: 1, want: "undefined: x",
		},
		{
			name: "a process that ended early is one failure",
			events: `{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"exit status 255\n"}
{"Action":"fail","Package":"p"}
`,
			passed: 1, failed: 1, want: "exit status 255",
		},
		{
			name: "the test that ended the process is shown",
			events: `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Output":"exit status 255\n"}
{"Action":"fail","Package":"p"}
`,
			failed: 1, want: "RUN   TestA",
		},
		{
			name:   "words of the go command pass through",
			events: "go: cannot find main module\n",
			want:   "cannot find main module",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			sum, err := summarize(strings.NewReader(tt.events), &out)
			if err != nil {
				t.Fatal(err)
			}
			if sum.passed != tt.passed || sum.failed != tt.failed || sum.skipped != tt.skipped {
				t.Errorf("got %d passed, %d failed, %d skipped; want %d, %d, %d",
					sum.passed, sum.failed, sum.skipped, tt.passed, tt.failed, tt.skipped)
			}
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("%q is not in the output:\n%s", tt.want, out.String())
			}
			if tt.unwanted != "" && strings.Contains(out.String(), tt.unwanted) {
				t.Errorf("%q is in the output:\n%s", tt.unwanted, out.String())
			}
		})
	}
}

func TestTook(t *testing.T) {
	events := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"fail","Package":"q","Test":"TestC","Elapsed":12.25}
{"Action":"fail","Package":"q","Elapsed":20}
`
	sum, err := summarize(strings.NewReader(events), new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := sum.took("unit"), "1.50 unit p TestA\n0.00 unit p TestB\n12.25 unit q TestC\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

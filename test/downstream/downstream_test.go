package downstream

import (
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestSuites(t *testing.T) {
	suites, err := Suites()
	if err != nil || len(suites) == 0 {
		t.Fatal(suites, err)
	}
	if _, err := Explained(); err != nil {
		t.Fatal(err)
	}
	got, err := parseSuites("# none\nx example.com/x@v1.0.0 2 ./a/... ./b skip:^TestNever$\n")
	want := []Suite{{Name: "x", Module: "example.com/x@v1.0.0", Minutes: 2, Packages: []string{"./a/...", "./b"}, Skip: "^TestNever$"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"x m@v1 2", "x m 2 .", "x m@v1 fast .", "x m@v1 0 .", "x m@v1 9 .\nx m@v2 9 .", "x m@v1 9 . skip:("} {
		if got, err := parseSuites(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for _, text := range []string{"x p.TestA", "x: reason", "x p.TestA: "} {
		if got, err := parseExplained(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

const onStock = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"hello\n"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}
{"Action":"pass","Package":"q","Test":"TestC"}
{"Action":"pass","Package":"q"}
`

// What differs is named once: of a test that fails in a part, the part; of a package that does not build, all its tests.
func TestCompare(t *testing.T) {
	read := func(text string) Results {
		r, err := readResults(strings.NewReader(text), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	stock := read(onStock)
	if got := compare(stock, read(onStock)); len(got) != 0 || stock.Count() != (Count{2, 0, 1}) {
		t.Errorf("%v, %+v", got, stock.Count())
	}
	failing := read(`{"Action":"fail","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
not JSON
{"Action":"fail","Package":"q"}
`)
	want := []Difference{{Test{"p", "TestA/two"}, "pass", "fail"}, {Test{"q", "TestC"}, "pass", ""}}
	if got := compare(stock, failing); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := failing.Count(); got != (Count{0, 2, 1}) {
		t.Errorf("%+v", got)
	}
	both := read(`{"Action":"fail","Package":"q"}`)
	if got := compare(read(`{"Action":"pass","Package":"q"}`), both); !reflect.DeepEqual(got, []Difference{{Test{"q", ""}, "pass", "fail"}}) {
		t.Errorf("a package alone: %v", got)
	}
}

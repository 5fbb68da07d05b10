package prune

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"holdfast/worker/snapshot"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"1": {Bytes: 1}, "10GB": {Bytes: 1e10}, "10 GiB": {Bytes: 10 << 30}, "1.5kB": {Bytes: 1500}, "0.5KiB": {Bytes: 512},
		"7 tib": {Bytes: 7 << 40}, "3kb": {Bytes: 3000}, " 2B ": {Bytes: 2}, "1024PiB": {Bytes: 1 << 60}, "20%": {Percent: 20}, "100 %": {Percent: 100},
		"1152921504606846976": {Bytes: 1 << 60},
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "GB", "-1", "-5%", "0", "0%", "0GB", "0.1B", "101%", "1.5%", "1e3", "1025PiB", "99999999999999999999", "1..5GB",
		"1 GB 2", "5XB", "NaN", "Inf", "0x10", "1_000", "%", ".", "1 %%", "20% of it", "1152921504606846977"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for total, want := range map[int64]int64{0: 0, 1: 0, 100: 37, 1<<63 - 1: 3412647653636267048, 199: 73} {
		if got := (Size{Percent: 37}).Of(total); got != want {
			t.Errorf("37%% of %d is %d", total, got)
		}
	}
}

func TestDurations(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"60d": 60 * day, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "3600": time.Hour, "36500d": 36500 * day, "0d1s": time.Second, "1ns": 1,
	} {
		if got, err := ParseDuration(text); err != nil || time.Duration(got) != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0s", "0d", "-1h", "-1d", "-5", "1d-1h", "1d+1h", "36501d", "36500d1ns", "999999999h", "d", "1d1", "1w", "9223372036854775807",
		"106751d", "213503d", "1.5d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestFilters(t *testing.T) {
	c := &snapshot.Candidate{Namespace: "build", Info: snapshot.Info{Name: `base/a,b"c`, Labels: map[string]string{"team": "a", "x.y/z": "1,2"}}}
	for text, want := range map[string]bool{
		"namespace==build": true, "namespace!=build": false, "namespace == build": true, "namespace==": false, "namespace~=^b.*d$": true,
		`name=="base/a,b\"c"`: true, "name~=^base/": true, `name~="a,b"`: true, "name!=x": true, "namespace==build,name==x": false, "namespace==build, name!=x": true,
		"labels.team": true, "labels.team==a": true, "labels.team!=a": false, "labels.other": false, "labels.other!=a": true, "labels.other==": true,
		`labels."x.y/z"`: true, `labels.x.y/z=="1,2"`: true, "labels.team,labels.x.y/z,namespace!=q": true, "labels.team~=[b-z]": false, "namespace==`build`": true,
	} {
		f, err := ParseFilter(text)
		if err != nil || f.Match(c) != want {
			t.Errorf("%q: %v, %v", text, f.Match(c), err)
		}
		if f.String() != text {
			t.Errorf("%q is %q again", text, f.String())
		}
	}
	for _, text := range []string{"", ",", "namespace", "name", "namespace=build", "labels", "labels.", "labels==x", "labels.==x", `labels.""`, "namespace==a,", "namespace==a,,name==b",
		"name~=(", `name=="a`, `name=="a"b`, "size==5", "labels.a=b", "namespace==a name==b,x", "name.x==1", `labels."a`, "NAMESPACE==a"} {
		if f, err := ParseFilter(text); err == nil {
			t.Errorf("%q is %+v", text, f.conditions)
		}
	}
}

// TestDefault: the text that explains all fields is the defaults, and has all fields.
func TestDefault(t *testing.T) {
	c, err := Parse(DefaultText())
	if err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("it is %+v, %v\nand should be %+v", c, err, Default())
	}
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Policy]()} {
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("toml"), ",")
			if !strings.Contains(DefaultText(), "# "+name+" ") && !strings.Contains(DefaultText(), "# "+name+":") && name != "policy" {
				t.Errorf("%s is not explained", name)
			}
		}
	}
	uncommented := DefaultText()
	for _, line := range strings.Split(uncommented, "\n") {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && line != "#" {
			uncommented = strings.Replace(uncommented, line, line[1:], 1)
		}
	}
	if c, err := Parse(uncommented); err != nil || c.MaxMounts == 0 || len(c.Policies[0].Filters) != 2 {
		t.Errorf("with what is commented out: %+v, %v", c, err)
	}
}

// TestParse: what is refused names the field, and the line if there is one.
func TestParse(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string // parts of the error; none: it is read
	}{
		{"", nil},
		{"[[policy]]\nall = true", nil},
		{"[[policy]]\nmaxUsedSpace = 5000", nil},
		{"[[policy]]\nkeepDuration = 3600\nfilters = ['name==x']", nil},
		{"[[policy]]\nmaxUsedSpace = '5GB'\nreservedSpace = '50%'", nil}, // may be more or less
		{"[[policy]]", []string{"policy 1", "everything", "all = true"}},
		{"[[policy]]\nall = true\n[[policy]]\nall = false", []string{"policy 2"}},
		{"[[policy]]\nkeepBytes = 5", []string{"unknown", "policy.keepBytes"}},
		{"[[policy]]\nall = true\n[[policies]]\nall = true\n", []string{"unknown", "policies"}},
		{"maxMounts = -5", []string{"line 1", "maxMounts", "-5"}},
		{"maxMounts = 'many'", []string{"line 1", "maxMounts", "many"}},
		{"\n[[policy]]\nmaxUsedSpace = '-1GB'", []string{"line 3", "maxUsedSpace", "-1GB"}},
		{"[[policy]]\nminFreeSpace = '101%'", []string{"line 2", "minFreeSpace", "101%"}},
		{"[[policy]]\nreservedSpace = '9EB'", []string{"line 2", "reservedSpace", "EB"}},
		{"[[policy]]\nmaxUsedSpace = 0", []string{"line 2", "maxUsedSpace", "leave it out"}},
		{"[[policy]]\nmaxUsedSpace = true", []string{"maxUsedSpace"}},
		{"[[policy]]\nmaxUsedSpace = ['1GB']", []string{"maxUsedSpace"}},
		{"[[policy]]\nkeepDuration = '-1h'", []string{"line 2", "keepDuration", "negative"}},
		{"[[policy]]\nkeepDuration = 'soon'", []string{"line 2", "keepDuration", "soon"}},
		{"[[policy]]\nmaxSnapshots = 0", []string{"line 2", "maxSnapshots", "leave it out"}},
		{"[[policy]]\nmaxSnapshots = 1.5", []string{"line 2", "maxSnapshots"}},
		{"[[policy]]\nfilters = ['name==x', 'size>5']", []string{"line 2", "filters", "size>5"}},
		{"[[policy]]\nfilters = 'name==x'", []string{"filters"}},
		{"[[policy]]\nall = 'yes'", []string{"policy.all"}},
		{"[[policy]]\nreservedSpace = '2GB'\nmaxUsedSpace = '1GB'", []string{"policy 1", "reservedSpace", "maxUsedSpace"}},
		{"[[policy]]\nreservedSpace = '20%'\nmaxUsedSpace = '10%'", []string{"policy 1", "reservedSpace", "maxUsedSpace"}},
		{"[[policy]]\nreservedSpace = '60%'\nminFreeSpace = '50%'", []string{"policy 1", "more than there is"}},
		{"[[policy]]\nminFreeSpace = '100%'", []string{"policy 1", "minFreeSpace"}},
		{"[[policy]]\nreservedSpace = '100%'", []string{"policy 1", "reservedSpace"}},
		{"[policy]\nall = true", []string{"policy"}},
		{"[[policy]\nall = true", []string{"line 2"}},
		{"[[policy]]\nall = true\nall = false", []string{"line 3", "all"}},
		{strings.Repeat("[[policy]]\nall = true\n", 101), []string{"101 policies"}},
		{"#" + strings.Repeat(" ", maxText), []string{"bytes"}},
		{"a = '\xff'", []string{"line 1"}},
	} {
		c, err := Parse(test.text)
		if len(test.want) == 0 {
			if err != nil {
				t.Errorf("%.60q: %v", test.text, err)
			}
			continue
		}
		if !errors.Is(err, ErrConfig) {
			t.Errorf("%.60q is %+v, %v", test.text, c, err)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.60q: the error %q does not say %q", test.text, err, part)
			}
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prune.toml")
	if _, err := Load(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte(DefaultText()), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(t.Context(), path); err != nil || len(c.Policies) != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := os.WriteFile(path, []byte("what"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(t.Context(), path); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), path) {
		t.Errorf("a bad one: %v", err)
	}
}

// FuzzParse: whatever the text is, it is refused, or is a configuration that is the same when it is written and read.
func FuzzParse(f *testing.F) {
	f.Add("[[policy]]\nmaxUsedSpace = 1.5\nkeepDuration='1d1h'\nfilters=['labels.\"a.b\"']")
	f.Add("maxMounts=5\n[[policy]]\nall=true\n[[policy]]\nminFreeSpace='20%'\nmaxSnapshots=7")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("%v is not ErrConfig", err)
			}
			return
		}
		var b strings.Builder
		if err := toml.NewEncoder(&b).Encode(c); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(b.String())
		if err != nil || !same(c, again) {
			t.Fatalf("%+v is written as\n%s\nand read as %+v, %v", c, b.String(), again, err)
		}
	})
}

// same compares what has been read, but for regular expressions, which have no equality.
func same(a, b Config) bool {
	for _, c := range []*Config{&a, &b} {
		list := make([]Policy, len(c.Policies))
		copy(list, c.Policies)
		for i := range list {
			var texts []Filter
			for _, f := range list[i].Filters {
				texts = append(texts, Filter{text: f.text})
			}
			list[i].Filters = texts
		}
		c.Policies = list
	}
	return reflect.DeepEqual(a, b)
}

// FuzzSize: what is read as a size or duration is within bounds, and the same when it is written and read.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"10GB", "20%", "1.5KiB", "60d", "1d12h", "9223372036854775807"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSize(text); err == nil {
			if again, err := ParseSize(s.String()); err != nil || again != s || s.Bytes < 0 || s.Bytes > maxSize || s.IsZero() {
				t.Errorf("%q is %+v, which is written %v and read as %+v, %v", text, s, s, again, err)
			}
		}
		if d, err := ParseDuration(text); err == nil {
			if again, err := ParseDuration(d.String()); err != nil || again != d || d <= 0 || time.Duration(d) > maxDuration {
				t.Errorf("%q is %d, which is written %v and read as %d, %v", text, d, d, again, err)
			}
		}
		if f, err := ParseFilter(text); err == nil {
			f.Match(&snapshot.Candidate{})
		}
	})
}

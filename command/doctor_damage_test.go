package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// diagnosedDamage is what doctor --json tells of a damaged file.
type diagnosedDamage struct {
	Damaged bool   `json:"damaged"`
	Keys    uint64 `json:"sound_keys"`
	Buckets []struct {
		Name   string `json:"bucket"`
		Keys   uint64 `json:"sound_keys"`
		AtRisk bool   `json:"at_risk"`
	} `json:"buckets"`
	Damage []struct{ Page uint64 } `json:"damaged_pages"`
	Next   []string                `json:"next"`
}

// TestDoctorOfDamage: of a file with a damaged page, doctor printed one line and
// ended with exit code 1: nothing of what is sound, nor which buckets are at risk.
func TestDoctorOfDamage(t *testing.T) {
	withSample(t)
	at := 24 * samplePage // a leaf of bucket many
	damage(t, "sample.db", func(b []byte) []byte { clear(b[at:][:samplePage]); return b })
	before := snapshot(t, "sample.db")
	r := run(t, "doctor", "sample.db")
	for _, want := range []string{
		"Damaged: page 24: ", "Sound: 30 keys in 6 buckets\n", "  alpha     4           sound\n", "  many      22          at risk: not all of it can be read\n",
		"at risk: keys from ", " of bucket many (page 24)\n", "  cp --sparse=always sample.db sample.db.damaged\n  holdfast check sample.db\n", "  holdfast salvage -o OUT sample.db\n",
	} {
		wantIn(t, r, 3, want, "sample.db: damaged (1 fault); keep a copy of the file")
	}
	if code := run(t, "check", "sample.db").code; code != r.code {
		t.Errorf("exit code %d, that of check is %d", r.code, code)
	}
	var d diagnosedDamage
	r = run(t, "doctor", "sample.db", "--json")
	check(t, json.Unmarshal([]byte(r.out), &d))
	var risk []string
	for _, b := range d.Buckets {
		if b.AtRisk {
			risk = append(risk, fmt.Sprint(b.Name, " ", b.Keys))
		}
	}
	if r.code != 3 || !d.Damaged || d.Keys != 30 || len(d.Buckets) != 4 || !slices.Equal(risk, []string{"many 22"}) || len(d.Damage) != 1 || len(d.Next) != 3 {
		t.Errorf("%+v\n%s", d, r)
	}
	if after := snapshot(t, "sample.db"); after != before {
		t.Error("the file was changed")
	}
}

// TestDoctorOfSeveralDamaged: of several files a damaged one had only a line with its error: what doctor tells of it
// when it is alone was missing, in JSON too.
func TestDoctorOfSeveralDamaged(t *testing.T) {
	withSample(t)
	sound, err := os.ReadFile("sample.db")
	check(t, err)
	check(t, os.WriteFile("sound.db", sound, 0o600))
	check(t, os.WriteFile("text", []byte(strings.Repeat("no database ", 5000)), 0o600))
	damage(t, "sample.db", func(b []byte) []byte { clear(b[24*samplePage:][:samplePage]); return b })
	alone, aloneJSON := run(t, "doctor", "sample.db"), run(t, "doctor", "sample.db", "--json")
	r := run(t, "doctor", "sound.db", "sample.db", "text")
	wantIn(t, r, 3, "sound.db: sound\n", "holdfast: of 3 files 1 damaged, 1 unknown, 1 sound; keep copies")
	wantIn(t, r, 3, "\nsample.db: damaged\n"+alone.out+"\ntext: unknown\nnot a bbolt database", "")
	var several struct{ Files []map[string]any }
	var one map[string]any
	r = run(t, "doctor", "sound.db", "sample.db", "text", "--json")
	check(t, json.Unmarshal([]byte(r.out), &several))
	check(t, json.Unmarshal([]byte(aloneJSON.out), &one))
	if r.code != 3 || len(several.Files) != 3 || one["verdict"] != "damaged" || !reflect.DeepEqual(several.Files[1], one) {
		t.Errorf("alone %s\nwith others %s", aloneJSON, r)
	}
	damage(t, "sample.db", func(b []byte) []byte { b[40]++; b[samplePage+40]++; clear(b[2*samplePage:]); return b })
	wantIn(t, run(t, "doctor", "sample.db", "sound.db"), 3, "sample.db: damaged\n", "")
}

// TestDoctorOfWorseDamage: whatever is damaged, doctor says what to do.
func TestDoctorOfWorseDamage(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]byte) []byte
		code   int
		out    string
	}{
		"metas zeroed":  {func(b []byte) []byte { clear(b[:2*samplePage]); return b }, 3, "Sound: 38 keys in 6 buckets\n"},
		"metas damaged": {func(b []byte) []byte { b[40]++; b[samplePage+40]++; return b }, 3, "Sound: 38 keys in 6 buckets\n"},
		"cut off":       {func(b []byte) []byte { return b[:20*samplePage] }, 3, "the file is cut short: it has 20 of 29 pages\n"},
		"root":          {func(b []byte) []byte { clear(b[11*samplePage:][:samplePage]); return b }, 3, "\nNext: "},
		"freelist":      {func(b []byte) []byte { b[10*samplePage+8] = 2; return b }, 3, "holdfast compact -o OUT sample.db\n"},
	} {
		t.Run(name, func(t *testing.T) {
			withSample(t)
			damage(t, "sample.db", c.change)
			r := run(t, "doctor", "sample.db")
			if c.out != "" {
				wantIn(t, r, c.code, c.out, "sample.db: damaged (")
			} else {
				wantIn(t, r, c.code, "", "holdfast salvage -o OUT sample.db")
			}
			if of := run(t, "check", "sample.db").code; of != r.code {
				t.Errorf("exit code %d, that of check is %d", r.code, of)
			}
		})
	}
	workdir(t)
	check(t, os.WriteFile("text", []byte(strings.Repeat("no database ", 5000)), 0o600))
	wantIn(t, run(t, "doctor", "text"), 1, "", "text: not a bbolt database")
}

package holdfast_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// pages are all pages of text.
func pages(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "worker/*.md", "bench/results/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) < 15 {
		t.Fatalf("only %d pages were found", len(list))
	}
	return list
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(b), "")
}

// anchors are those of the headings of a page, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(text, -1) {
		heading := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading))
		unique := name
		for n := 1; all[unique]; n++ {
			unique = name + "-" + strconv.Itoa(n)
		}
		all[unique] = true
	}
	return all
}

// A heading got another word, and a link to it led nowhere.
func TestDocsLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	checked := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			name, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s: %v", page, m[1], err)
				continue
			}
			if anchor != "" && !anchors(prose(t, target))[anchor] {
				t.Errorf("%s: the link %s: %s has no such heading", page, m[1], target)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were found", checked)
	}
}

// Pages for users had words that a reader has to read twice.
func TestDocsWords(t *testing.T) {
	riddles := regexp.MustCompile(`(?i)\b(whoever|nobody|behind)\b`)
	list := []string{"README.md", "docs/adopting.md", "docs/blob-format.md", "docs/blobs.md", "docs/command.md", "docs/errors.md", "docs/format.md",
		"docs/holdfastd.md", "docs/operating.md", "docs/performance.md", "docs/recovering.md", "worker/README.md"}
	worker, err := filepath.Glob("docs/worker/*.md")
	if err != nil || len(worker) < 10 {
		t.Fatal(worker, err)
	}
	for _, page := range append(list, worker...) {
		for line := range strings.Lines(prose(t, page)) {
			if word := riddles.FindString(line); word != "" {
				t.Errorf("%s: %q in %s", page, word, line)
			}
		}
	}
}

// The first page was four screens, the changelog one of 40 kB that no one read.
func TestDocsSize(t *testing.T) {
	for page, most := range map[string]int{"README.md": 7_000, "CHANGELOG.md": 12_000, "docs/performance.md": 9_000, "docs/index.md": 3_000} {
		info, err := os.Stat(page)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > int64(most) {
			t.Errorf("%s has %d bytes; at most %d are meant", page, info.Size(), most)
		}
	}
}

// TestDocsTotal: all of docs had grown to 393 kB, with each thing said three times.
func TestDocsTotal(t *testing.T) {
	const most = 250_000
	var total int64
	err := filepath.WalkDir("docs", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil || total > most {
		t.Errorf("docs has %d bytes; at most %d are meant (%v)", total, most, err)
	}
}

// TestDocsIndex: each page for users is in the list of all pages.
func TestDocsIndex(t *testing.T) {
	index, err := os.ReadFile("docs/index.md")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range found {
		if name := filepath.Base(page); name != "index.md" && !strings.Contains(string(index), "("+name+")") {
			t.Errorf("docs/index.md does not name %s", page)
		}
	}
}

// TestDocsPictures: each picture is where a page shows it.
func TestDocsPictures(t *testing.T) {
	for page, want := range map[string]int{"README.md": 3, "docs/performance.md": 1, "docs/programs.md": 1} {
		shown := regexp.MustCompile(`!\[[^\]]+\]\(([^)]+\.svg)\)`).FindAllStringSubmatch(prose(t, page), -1)
		if len(shown) != want {
			t.Fatalf("%s shows %d pictures", page, len(shown))
		}
		for _, m := range shown {
			svg, err := os.ReadFile(filepath.Join(filepath.Dir(page), m[1]))
			if err != nil || !strings.HasPrefix(string(svg), "<svg ") {
				t.Errorf("%s: %v", m[1], err)
			}
		}
	}
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// maxBytes is how much all files of the page may have together.
const maxBytes = 200_000

// patience is how long it is waited for something that must come.
const patience = 15 * time.Second

// tab is a tab of a browser, with what it has complained of.
type tab struct {
	ctx context.Context

	mu         sync.Mutex
	complaints []string
	away       bool // the daemon is, on purpose
}

func newTab(browser context.Context) (*tab, error) {
	b := &tab{}
	b.ctx, _ = chromedp.NewContext(browser) // it ends with the browser
	chromedp.ListenTarget(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if b.away && e.Entry.Source == cdplog.SourceNetwork {
				return
			}
			if e.Entry.Level == cdplog.LevelError || e.Entry.Source == cdplog.SourceSecurity {
				b.complaints = append(b.complaints, e.Entry.Text)
			}
		case *page.EventJavascriptDialogOpening:
			b.complaints = append(b.complaints, "a dialog: "+e.Message)
		}
	})
	return b, chromedp.Run(b.ctx, cdplog.Enable(), runtime.Enable()) // without a timeout, which would be the tab's
}

func (b *tab) do(what string, actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Text("body", &text, chromedp.ByQuery))
		return fmt.Errorf("%s: %w; the page says: %.900q", what, err, text)
	}
	return nil
}

// until waits until an expression of JavaScript is true. (Poll of chromedp compiles it in the page, whose policy forbids that.)
func until(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			var is bool
			if err := chromedp.Evaluate("Boolean("+expression+")", &is).Do(ctx); err == nil && is {
				return nil
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s: %w", expression, ctx.Err())
			}
		}
	})
}

// press presses Enter on an element until an expression is true: a list that is loaded again has other elements.
func press(selector, expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q)?.focus()", selector), nil), chromedp.KeyEvent(kb.Enter))
			if err != nil {
				return err
			}
			soon, cancel := context.WithTimeout(ctx, time.Second)
			err = until(expression).Do(soon)
			cancel()
			if err == nil || ctx.Err() != nil {
				return err
			}
		}
	})
}

const says = `document.getElementById('view').innerText`

func saysAll(texts ...string) chromedp.Action {
	list := make([]string, len(texts))
	for i, text := range texts {
		list[i] = fmt.Sprintf("%s.includes(%q)", says, text)
	}
	return until(strings.Join(list, " && "))
}

// look looks at the page at an address.
func look(ctx context.Context, d *daemon, address, dir string) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(*browser), chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "browser")), chromedp.WindowSize(1200, 900))
	allocator, cancel := chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	window, end := chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Run(window); err != nil {
		return fmt.Errorf("%s: %w", *browser, err)
	}
	b, err := newTab(window)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return b.figures(address) },
		func() error { return b.overview() },
		func() error { return b.snapshots() },
		func() error { return b.steps(d) },
		func() error { return b.flood(d) },
		func() error { return b.others() },
		func() error { return b.narrow() },
		func() error { return b.restarted(d) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	complaints := b.complaints
	b.mu.Unlock()
	if len(complaints) > 0 {
		return fmt.Errorf("the browser complains: %s", strings.Join(complaints, "; "))
	}
	other, err := newTab(window)
	if err != nil {
		return err
	}
	return other.refused(address)
}

// figures loads the page some times.
func (b *tab) figures(address string) error {
	var paints, full []float64
	var loaded float64
	for range *rounds {
		var paint, ready float64
		err := b.do("loading", chromedp.Navigate("about:blank"), chromedp.Navigate(address), until(`document.getElementById('live').textContent === 'live'`), saysAll("Next to be pruned", "Snapshots"),
			chromedp.Evaluate(`performance.getEntriesByName('first-contentful-paint')[0].startTime`, &paint),
			chromedp.Evaluate(`performance.now()`, &ready),
			chromedp.Evaluate(`performance.getEntriesByType('resource').filter(r => r.name.includes('/page/')).reduce((n, r) => n + r.encodedBodySize, performance.getEntriesByType('navigation')[0].encodedBodySize)`, &loaded))
		if err != nil {
			return err
		}
		paints, full = append(paints, paint), append(full, ready)
	}
	slices.Sort(paints)
	slices.Sort(full)
	fmt.Printf("%d snapshots: first paint after %.0f ms (median of %d; most %.0f), with the store's figures after %.0f ms; the page has %.0f bytes\n",
		*many, paints[len(paints)/2], len(paints), paints[len(paints)-1], full[len(full)/2], loaded)
	if loaded == 0 || loaded > maxBytes {
		return fmt.Errorf("the page has %.0f bytes; at most %d are meant", loaded, maxBytes)
	}
	var hash string
	if err := b.do("the address", chromedp.Evaluate(`location.href`, &hash)); err != nil {
		return err
	}
	if strings.Contains(hash, "token") {
		return fmt.Errorf("the token stays in the address: %s", hash)
	}
	return nil
}

func (b *tab) picture(name string) error {
	if *pictures == "" {
		return nil
	}
	var png []byte
	if err := b.do("a picture", chromedp.CaptureScreenshot(&png)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644)
}

func (b *tab) overview() error {
	err := b.do("the overview", saysAll("free", "running", "hits", "Limits", "policies", "held"), until(fmt.Sprintf("%s.match(/[1-9][0-9,]* in|in [1-9][0-9,]* that are committed/)", says)))
	return errors.Join(err, b.picture("page-overview"))
}

// snapshots uses the keyboard where it can.
func (b *tab) snapshots() error {
	err := b.do("the tree", chromedp.KeyEvent("3"), until(`location.hash === '#snapshots' && document.querySelectorAll('tbody tr').length > 10`),
		press(`button.twist:not([disabled])`, `document.querySelector('button.twist[aria-expanded=true]')`), until(`document.querySelectorAll('tbody tr td[style*="1.2rem"]').length > 2`))
	if err != nil {
		return err
	}
	err = b.do("searching", chromedp.Evaluate(`document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "/", bubbles: true, cancelable: true}))`, nil), until(`document.activeElement.type === 'search'`),
		chromedp.KeyEvent("PART-49"), until(`document.querySelector('.tools [role=status]').textContent.match(/^[1-9][0-9,]* found/) && document.querySelectorAll('tbody tr').length > 10`),
		chromedp.SetValue("select", "ORDER_NAME", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('select').dispatchEvent(new Event('change'))`, nil),
		press(`button.link`, says+`.includes('Remove')`), saysAll("Last used"), until(fmt.Sprintf("%s.match(/It stays|The next prune/)", says)))
	if err := errors.Join(err, b.picture("page-snapshots")); err != nil {
		return err
	}
	var images int
	var title string
	err = b.do("a hostile name", chromedp.SetValue("input[type=search]", "onerror", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('input[type=search]').dispatchEvent(new Event('input'))`, nil),
		saysAll(hostile), chromedp.Evaluate(`document.querySelector('button.link').click()`, nil), saysAll("Remove"),
		chromedp.Evaluate(`document.querySelectorAll('img').length`, &images), chromedp.Title(&title))
	if err == nil && (images != 0 || strings.Contains(title, "hacked")) {
		err = errors.New("a name became markup")
	}
	return err
}

// steps follows one that runs.
func (b *tab) steps(d *daemon) error {
	done := make(chan error, 1)
	go func() {
		done <- d.command(b.ctx, "step", "-q", "--no-cache", "--base", "bb", "--", "sh", "-c", "echo this comes first; sleep 3; echo this comes last")
	}()
	err := b.do("steps", chromedp.KeyEvent(kb.Escape), chromedp.Evaluate(`document.activeElement.blur()`, nil), chromedp.KeyEvent("2"), saysAll("has written this", "failed", "running"),
		chromedp.Evaluate(`[...document.querySelectorAll('button.link')].find(b => b.textContent.includes('this comes first')).click()`, nil),
		until(`document.querySelector('pre') && document.querySelector('pre').textContent.includes('this comes first') && !document.querySelector('pre').textContent.includes('last')`))
	if err := errors.Join(err, b.picture("page-steps")); err != nil {
		return err
	}
	if err := b.do("the end of a step", until(`document.querySelector('pre').textContent.includes('this comes last')`), saysAll("that was all")); err != nil {
		return err
	}
	return <-done
}

// flood follows a step that writes much: all of it stayed in the browser, 60 MB a second.
func (b *tab) flood(d *daemon) error {
	done := make(chan error, 1)
	go func() {
		done <- d.command(b.ctx, "step", "-q", "--no-cache", "--base", "bb", "--", "sh", "-c", "x=flood; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do x=$x$x; done; for i in 1 2 3 4 5 6 7 8; do sleep 0.5; echo $x >&2; done; echo the last line")
	}()
	var length int
	err := b.do("a flood", until(`[...document.querySelectorAll('button.link')].find(b => b.textContent.includes('x=flood'))`),
		chromedp.Evaluate(`[...document.querySelectorAll('button.link')].find(b => b.textContent.includes('x=flood')).click()`, nil),
		saysAll("that was all; what came first is not shown any more", "the last line"), chromedp.Evaluate(`document.querySelector('pre').textContent.length`, &length))
	if err == nil && (length > 1<<20 || length < 1<<19) {
		err = fmt.Errorf("%d characters of output are shown", length)
	}
	return errors.Join(err, <-done)
}

func (b *tab) others() error {
	err := b.do("mounts", chromedp.KeyEvent("4"), saysAll("What is mounted", "Unmounts under way", "none"))
	if err != nil {
		return err
	}
	err = b.do("databases", chromedp.KeyEvent("5"), saysAll("metadata.db", "results.db", "pages in use", "median"),
		until(`[...document.querySelectorAll('canvas')].every(c => c.getContext('2d', {willReadFrequently: true}).getImageData(0, 0, c.width, c.height).data.some(v => v > 0))`))
	return errors.Join(err, b.picture("page-databases"))
}

// narrow looks at all views on a phone, in the dark.
func (b *tab) narrow() error {
	err := b.do("a phone", chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}))
	for _, view := range []string{"overview", "steps", "snapshots", "mounts", "databases"} {
		var wide bool
		var back string
		err = errors.Join(err, b.do(view, chromedp.Evaluate(fmt.Sprintf(`location.hash = %q`, view), nil), until(fmt.Sprintf("document.title === 'holdfastd: %s' && %s.length > 40", view, says)), chromedp.Sleep(300*time.Millisecond),
			chromedp.Evaluate(`document.documentElement.scrollWidth > innerWidth`, &wide), chromedp.Evaluate(`getComputedStyle(document.body).backgroundColor`, &back)))
		if wide || back != "rgb(20, 26, 26)" {
			err = errors.Join(err, fmt.Errorf("%s on a phone in the dark: wider than the screen: %v, background %s", view, wide, back))
		}
		if err != nil {
			return err
		}
	}
	err = b.do("back to the overview", chromedp.Evaluate(`location.hash = 'overview'`, nil), saysAll("Limits"))
	return errors.Join(err, b.picture("page-phone"))
}

// restarted kills the daemon beneath the page, and starts it again: the page says so, and goes on.
func (b *tab) restarted(d *daemon) error {
	b.mu.Lock()
	b.away = true
	b.mu.Unlock()
	const live = `document.getElementById('live')`
	d.kill()
	if err := b.do("the daemon is gone", until(live+`.textContent.includes('does not answer')`), saysAll("Limits")); err != nil {
		return err
	}
	if err := d.start(); err != nil {
		return err
	}
	if err := d.command(b.ctx, "step", "-q", "--base", "bb", "--env", "N=again", "--", "echo", "of the next daemon"); err != nil {
		return err
	}
	return b.do("the daemon is there again", until(live+`.className === 'good'`), chromedp.KeyEvent("2"), saysAll("of the next daemon"))
}

// refused opens the page without the token, and with a wrong one.
func (b *tab) refused(address string) error {
	bare, _, _ := strings.Cut(address, "#")
	for _, at := range []string{bare, bare + "#token=wrong"} {
		var text string
		if err := b.do("without the token", chromedp.Navigate("about:blank"), chromedp.Navigate(at), until(`document.getElementById('token') !== null`), chromedp.Text("body", &text, chromedp.ByQuery)); err != nil {
			return err
		}
		if strings.Contains(text, "overlay") || strings.Contains(text, "/store") {
			return fmt.Errorf("without the token the page says %q", text)
		}
	}
	return nil
}

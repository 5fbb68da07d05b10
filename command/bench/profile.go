package bench

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"runtime/pprof"

	"holdfast/command/cli"
)

// profileKinds are the profiles that bench writes, with the flags that name their files.
var profileKinds = [3]struct{ flag, of string }{
	{"cpuprofile", "processor time"}, {"memprofile", "memory"}, {"blockprofile", "waiting"},
}

const (
	profileCPU = iota
	profileMemory
	profileBlock
)

// memoryRate is how many bytes are allocated between two that the profile has.
const memoryRate = 4096

// profiler makes profiles of the process.
type profiler struct {
	*cli.Call
	files   [3]cli.OutputFile
	dst     [3]string // "" for those that are not asked for
	content [3]bytes.Buffer
	running bool
	rate    int // of memory profiles, before
}

// newProfiler sees that the profiles can be written where the flags say.
func newProfiler(c *cli.Call, f *benchFlags) (*profiler, error) {
	p := &profiler{Call: c}
	for i, path := range f.profiles {
		if path == "" {
			continue
		}
		p.files[i] = cli.OutputFile{Path: path, Force: true, Unflushed: true}
		var err error
		if p.dst[i], err = c.Destination(p.files[i], nil, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// begin begins to profile.
func (p *profiler) begin() error {
	if p.dst[profileCPU] != "" {
		if err := pprof.StartCPUProfile(&p.content[profileCPU]); err != nil {
			return err
		}
	}
	if p.dst[profileMemory] != "" {
		p.rate, runtime.MemProfileRate = runtime.MemProfileRate, memoryRate
	}
	if p.dst[profileBlock] != "" {
		runtime.SetBlockProfileRate(1)
	}
	p.running = true
	return nil
}

// end ends it; a second time it does nothing.
func (p *profiler) end() error {
	if !p.running {
		return nil
	}
	p.running = false
	if p.dst[profileCPU] != "" {
		pprof.StopCPUProfile()
	}
	var err error
	if p.dst[profileMemory] != "" {
		err = pprof.Lookup("heap").WriteTo(&p.content[profileMemory], 0)
		runtime.MemProfileRate = p.rate
	}
	if p.dst[profileBlock] != "" {
		if e := pprof.Lookup("block").WriteTo(&p.content[profileBlock], 0); err == nil {
			err = e
		}
		runtime.SetBlockProfileRate(0)
	}
	return err
}

// save writes the profiles to their files.
func (p *profiler) save() error {
	for i, dst := range p.dst {
		if dst == "" {
			continue
		}
		err := p.MakeFile(dst, p.files[i], func(_ context.Context, temp string) error {
			return os.WriteFile(temp, p.content[i].Bytes(), 0o600)
		})
		if err != nil {
			return p.Explain(p.files[i].Path, err)
		}
	}
	return nil
}

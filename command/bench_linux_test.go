package command_test

import "testing"

// When what it prints has no reader, SIGPIPE ends bench; its file is removed all the same.
func TestBenchClosedPipe(t *testing.T) {
	for _, args := range [][]string{{"--time", "1ms"}, {"--time", "1ms", "--json"}, {"--time", "1ms", "--gobench-output"}} {
		dir := workdir(t)
		t.Setenv("TMPDIR", dir)
		cmd := process(t, append([]string{"bench"}, args...)...)
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, out.Close())
		check(t, cmd.Start())
		_ = cmd.Wait()
		wantFiles(t, dir, "")
	}
}

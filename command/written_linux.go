package command

import (
	"bytes"
	"os"
	"strconv"
)

// bytesWritten is the number of bytes that this process has given to write
// calls so far; -1 if the system does not tell.
func bytesWritten() int64 {
	data, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(data) {
		if text, ok := bytes.CutPrefix(line, []byte("wchar: ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			if err != nil {
				return -1
			}
			return n
		}
	}
	return -1
}

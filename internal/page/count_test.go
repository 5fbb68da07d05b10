package page

import "testing"

// A count of more elements than 16 bits hold was cut off while a page was laid
// out, which lost keys. Whoever asks for that must be told, before it is written.
func TestEncoderRefusesCount(t *testing.T) {
	buf := make([]byte, HeaderSize+(MaxCount+1)*LeafElementSize)
	for name, layout := range map[string]func(count int){
		"leaf":   func(count int) { NewLeaf(buf, 2, count, 0) },
		"branch": func(count int) { NewBranch(buf, 2, count, 0) },
	} {
		layout(MaxCount)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a %s of %d elements is laid out", name, MaxCount+1)
				}
			}()
			layout(MaxCount + 1)
		}()
	}
}

package step

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const (
	passwdFile = "# a comment\nroot:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/home/ann:/bin/sh\n12:x:1012:13::/:\nbad line\n" +
		"high:x:4294967295:0::/:\nlong:x:4294967296:0::/:\nneg:x:-1:0::/:\nann:x:7:7::/:\nbob:x:1001:1001\r\nsame:x:1000:5::/:\n"
	groupFile = "root:x:0:\nusers:x:100:ann\nvideo:x:44:ann,bob\naudio:x:45:bob,ann,\nhigh:x:4294967295:ann\nbad\nbob:x:1001:\n7:x:70:\n"
)

func TestUserIn(t *testing.T) {
	for text, want := range map[string]User{
		"ann":       {UID: 1000, GID: 100, Groups: []uint32{44, 45}},
		"1000":      {UID: 1000, GID: 100, Groups: []uint32{44, 45}},
		"ann:video": {UID: 1000, GID: 44},
		"ann:9":     {UID: 1000, GID: 9},
		"ann:7":     {UID: 1000, GID: 70}, // a name first
		"12":        {UID: 1012, GID: 13},
		"1012":      {UID: 1012, GID: 13},
		"4711":      {UID: 4711},
		"4711:bob":  {UID: 4711, GID: 1001},
		"bob":       {UID: 1001, GID: 1001, Groups: []uint32{44, 45}},
		"root":      {},
	} {
		if got, err := userIn(text, []byte(passwdFile), []byte(groupFile)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"eve", "high", "long", "neg", "bad line", "#", "", "4294967295", "-1", "ann:nobody", "ann:high", "ann:4294967296", "x"} {
		if got, err := userIn(text, []byte(passwdFile), []byte(groupFile)); !errors.Is(err, ErrNoUser) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	var many strings.Builder
	for i := range maxGroups + 10 {
		fmt.Fprintf(&many, "g%d:x:%d:ann\n", i, i+1000)
	}
	if _, err := userIn("ann", []byte(passwdFile), []byte(many.String())); !errors.Is(err, ErrNoUser) {
		t.Error(err)
	}
}

func FuzzUserIn(f *testing.F) {
	f.Add("ann:users", []byte(passwdFile), []byte(groupFile))
	f.Fuzz(func(t *testing.T, text string, passwd, group []byte) {
		u, err := userIn(text, passwd, group)
		if err == nil && (u.UID == noID || u.GID == noID || len(u.Groups) > maxGroups) {
			t.Errorf("%+v", u)
		}
	})
}

// The number that stands for "no change" would have left the command root.
func TestNoID(t *testing.T) {
	for _, u := range []User{{UID: noID}, {GID: noID}, {Groups: []uint32{1, noID}},
		{Name: "a", UID: 1}, {Name: ":g"}, {Name: "a:"}, {Name: "a:b:c"}, {Name: "a\nb"}, {Name: "a\x00b"}} {
		s := someStep()
		s.User = u
		if _, err := s.normalize(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

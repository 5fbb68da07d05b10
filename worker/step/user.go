package step

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// This file reads users and groups. moby/sys/user takes a number that is none for 0: a user whose line is damaged would
// be root. It also refuses ids above 2^31.

// noID is what the system takes for "no change" where a user or group is set: it belongs to no one.
const noID = math.MaxUint32

// normalize verifies a user. A Name that is numbers is another user than the same numbers: who they are
// in the base gives groups.
func (u *User) normalize() error {
	u.Groups = slices.Compact(slices.Sorted(slices.Values(u.Groups)))
	if u.UID == noID || u.GID == noID || slices.Contains(u.Groups, noID) {
		return invalidf("the user or group %d", uint32(noID))
	}
	if u.Name == "" {
		return nil
	}
	if u.UID != 0 || u.GID != 0 || len(u.Groups) > 0 {
		return invalidf("user %q has numbers besides", u.Name)
	}
	name, group, both := strings.Cut(u.Name, ":")
	if name == "" || both && group == "" || strings.ContainsAny(group, ":") || strings.ContainsAny(u.Name, "\n") {
		return invalidf("user %q is not USER or USER:GROUP", u.Name)
	}
	return nil
}

// ParseUser reads USER or USER:GROUP; ok is false if text is neither. Numbers are taken as they are, and root is 0
// everywhere; other names are looked up in the base.
func ParseUser(text string) (u User, ok bool) {
	user, group, both := strings.Cut(text, ":")
	for _, part := range []string{user, group} {
		if strings.ContainsAny(part, ": \t\n\x00") || strings.HasPrefix(part, "-") || part == "" && (both || part == user) {
			return u, false
		}
	}
	numbers := true
	number := func(s string) uint32 {
		if s == "root" || s == "" {
			return 0
		}
		n, err := strconv.ParseUint(s, 10, 32)
		numbers = numbers && err == nil
		return uint32(n)
	}
	u = User{UID: number(user), GID: number(group)}
	if !numbers {
		u = User{Name: text}
	}
	return u, true
}

// maxGroups is how many groups the kernel lets a process have.
const maxGroups = 65536

// userIn finds a user of a name, with files like /etc/passwd and /etc/group, whose lines may be anything.
func userIn(text string, passwd, group []byte) (User, error) {
	name, groupName, both := strings.Cut(text, ":")
	u, login, found := User{}, "", false
	number, isNumber := parseNumber(name)
	eachLine(passwd, 4, func(fields []string) bool {
		uid, ok := parseNumber(fields[2])
		gid, ok2 := parseNumber(fields[3])
		if !ok || !ok2 || fields[0] != name && !(isNumber && uid == number) {
			return true
		}
		if found && fields[0] != name {
			return true // the first of the number, unless one has it as its name
		}
		u.UID, u.GID, login, found = uid, gid, fields[0], true
		return fields[0] != name
	})
	switch {
	case !found && !isNumber:
		return User{}, fmt.Errorf("%w: %q is not in its /etc/passwd", ErrNoUser, name)
	case !found:
		u.UID = number
	}
	if both {
		gid, err := groupIn(groupName, group)
		u.GID = gid
		return u, err
	}
	if login == "" {
		return u, nil
	}
	eachLine(group, 4, func(fields []string) bool {
		gid, ok := parseNumber(fields[2])
		if ok && gid != u.GID && slices.Contains(strings.Split(fields[3], ","), login) {
			u.Groups = append(u.Groups, gid)
		}
		return true
	})
	u.Groups = slices.Compact(slices.Sorted(slices.Values(u.Groups)))
	if len(u.Groups) > maxGroups {
		return User{}, fmt.Errorf("%w: %q is in %d groups, %d are possible", ErrNoUser, name, len(u.Groups), maxGroups)
	}
	return u, nil
}

// homeIn is the home directory of a user in a file like /etc/passwd; / if it says none.
func homeIn(passwd []byte, uid uint32) string {
	home := "/"
	eachLine(passwd, 6, func(fields []string) bool {
		n, ok := parseNumber(fields[2])
		if !ok || n != uid {
			return true
		}
		if path.IsAbs(fields[5]) {
			home = fields[5]
		}
		return false
	})
	return home
}

// groupIn finds a group.
func groupIn(name string, group []byte) (gid uint32, err error) {
	found := false
	eachLine(group, 3, func(fields []string) bool {
		n, ok := parseNumber(fields[2])
		if ok && fields[0] == name {
			gid, found = n, true
		}
		return !found
	})
	if found {
		return gid, nil
	}
	if n, ok := parseNumber(name); ok {
		return n, nil
	}
	return 0, fmt.Errorf("%w: the group %q is not in its /etc/group", ErrNoUser, name)
}

// eachLine calls each for the fields of each line that has so many, until it returns false.
func eachLine(text []byte, least int, each func([]string) bool) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.Split(line, ":")
		if strings.HasPrefix(line, "#") || fields[0] == "" || len(fields) < least {
			continue
		}
		if !each(fields) {
			return
		}
	}
}

func parseNumber(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != noID
}

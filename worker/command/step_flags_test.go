package command

import (
	"slices"
	"strings"
	"testing"

	"holdfast/worker/base"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// What the image of a base says counts where no flag says otherwise.
func TestBaseSays(t *testing.T) {
	image := snapshot.Info{Name: "b", Labels: map[string]string{
		base.LabelEnv: `["A=image","PATH=/image"]`, base.LabelWorkdir: "/image", base.LabelUser: "7:8"}}
	plain := snapshot.Info{Name: "p"}
	for _, c := range []struct {
		flags stepFlags
		on    snapshot.Info
		env   string
		dir   string
		user  step.User
	}{
		{stepFlags{}, image, "A=image PATH=/image", "/image", step.User{UID: 7, GID: 8}},
		{stepFlags{env: []string{"A=flag"}, workdir: "/flag", user: "0"}, image, "A=flag PATH=/image", "/flag", step.User{}},
		{stepFlags{env: []string{"PATH=/flag"}}, plain, "PATH=/flag", "", step.User{}},
		{stepFlags{user: "5:staff"}, image, "A=image PATH=/image", "/image", step.User{Name: "5:staff"}},
		{stepFlags{user: "root:4"}, plain, "PATH=" + defaultPath, "", step.User{GID: 4}},
	} {
		c.flags.base, c.flags.network = "b", "none"
		s, err := c.flags.step(t.Context(), []string{"x"})
		if err == nil {
			err = c.flags.with(&s, c.on)
		}
		slices.Sort(s.Env)
		if err != nil || strings.Join(s.Env, " ") != c.env || s.Dir != c.dir || s.User.UID != c.user.UID || s.User.GID != c.user.GID || s.User.Name != c.user.Name {
			t.Errorf("%+v: %+v, %v", c.flags, s, err)
		}
	}
	image.Labels[base.LabelUser] = "builder:staff"
	named := step.Step{}
	if err := (&stepFlags{}).with(&named, image); err != nil || named.User.Name != "builder:staff" {
		t.Errorf("a user by name: %+v, %v", named.User, err)
	}
	image.Labels[base.LabelUser] = "builder:"
	if err := (&stepFlags{}).with(&step.Step{}, image); err == nil || !strings.Contains(err.Error(), "give another with --user") {
		t.Errorf("no user: %v", err)
	}
	image.Labels[base.LabelEnv] = "{"
	if err := (&stepFlags{}).with(&step.Step{}, image); err == nil {
		t.Error("labels that cannot be read")
	}
}

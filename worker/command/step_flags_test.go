package command

import (
	"slices"
	"strings"
	"testing"

	"holdfast/worker/image"
	"holdfast/worker/service"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

// What the image of a base says counts where no flag says otherwise.
func TestBaseSays(t *testing.T) {
	base := snapshot.Info{Name: "b", Labels: map[string]string{
		image.LabelEnv: `["A=image","PATH=/image"]`, image.LabelWorkdir: "/image", image.LabelUser: "7:8"}}
	plain := snapshot.Info{Name: "p"}
	for _, c := range []struct {
		flags stepFlags
		on    snapshot.Info
		env   string
		dir   string
		user  step.User
	}{
		{stepFlags{}, base, "A=image PATH=/image", "/image", step.User{UID: 7, GID: 8}},
		{stepFlags{env: []string{"A=flag"}, workdir: "/flag", user: "0"}, base, "A=flag PATH=/image", "/flag", step.User{}},
		{stepFlags{env: []string{"PATH=/flag"}}, plain, "PATH=/flag", "", step.User{}},
		{stepFlags{user: "5:staff"}, base, "A=image PATH=/image", "/image", step.User{Name: "5:staff"}},
		{stepFlags{user: "root:4"}, plain, "PATH=" + service.DefaultPath, "", step.User{GID: 4}},
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
	base.Labels[image.LabelUser] = "builder:staff"
	named := step.Step{}
	if err := (&stepFlags{}).with(&named, base); err != nil || named.User.Name != "builder:staff" {
		t.Errorf("a user by name: %+v, %v", named.User, err)
	}
	base.Labels[image.LabelUser] = "builder:"
	if err := (&stepFlags{}).with(&step.Step{}, base); err == nil || !strings.Contains(err.Error(), "give another with --user") {
		t.Errorf("no user: %v", err)
	}
	base.Labels[image.LabelEnv] = "{"
	if err := (&stepFlags{}).with(&step.Step{}, base); err == nil {
		t.Error("labels that cannot be read")
	}
}

package command

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/command/cli"
	"holdfast/worker/snapshot"
	"holdfast/worker/step"
)

func init() { register((*app).newLogs) }

const logsHelp = `Print what the command of a step wrote, standard output and standard error together, as it
was recorded with its result. NAME is that of the result, as snapshot ls shows it; it can be
abbreviated. Of a step that failed nothing is kept.`

func (a *app) newLogs() *cobra.Command {
	return &cobra.Command{
		Use: "logs NAME", Short: "Print what the command of a result wrote", Long: logsHelp, Args: cobra.ExactArgs(1),
		RunE: a.action((*call).logs), ValidArgsFunction: a.completeSnapshots(0),
	}
}

type logsReport struct {
	Snapshot     string    `json:"snapshot"`
	Command      string    `json:"command"`
	Created      time.Time `json:"created"`
	Output       string    `json:"output"`
	OutputBase64 string    `json:"output_base64"` // in place of output, if that is not text
	OutputBytes  int64     `json:"output_bytes"`  // that were written; what is kept can be less
	Lost         bool      `json:"lost"`          // the process that ran the step ended before it could record this
}

// recorded is what is recorded of a step.
func (c *call) recorded(t *snapshot.Namespace, id step.ID) (*step.Result, error) {
	if c.shared != nil { // its Runner has the file open
		return c.shared.runner.Recorded(id)
	}
	return step.Recorded(t, id)
}

func (c *call) logs() error {
	var r logsReport
	var output []byte
	err := c.withStore(false, func(t *snapshot.Namespace) error {
		info, err := c.find(t, c.args[0])
		if err != nil {
			return err
		}
		id, ok := step.ParseSnapshot(info.Name)
		if !ok {
			return &nextError{fmt.Errorf("snapshot %q is not the result of a step", info.Name), "holdfastd snapshot ls shows those that are, with their commands"}
		}
		r = logsReport{Snapshot: info.Name, Command: info.Labels[step.LabelCommand], Created: info.Created}
		result, err := c.recorded(t, id)
		switch {
		case errors.Is(err, step.ErrNotFound):
			r.Lost = true
			return nil
		case err != nil:
			return err
		}
		r.Created, r.OutputBytes, r.Lost, output = result.Created, result.OutputSize, result.Adopted, result.Output
		return nil
	})
	if err != nil {
		return err
	}
	if c.json {
		if utf8.Valid(output) {
			r.Output = string(output)
		} else {
			r.OutputBase64 = base64.StdEncoding.EncodeToString(output)
		}
		return cli.PrintJSON(c.out, r)
	}
	if r.Lost {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "what %s wrote is lost: holdfastd was killed before it could be recorded\n", abbreviated(r.Snapshot, false))
	}
	_, err = c.out.Write(output)
	return err
}

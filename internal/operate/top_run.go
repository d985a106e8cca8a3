package operate

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/pump"
	"github.com/queuepump/queuepump/pump/status"
)

// causesEvery is how often the command looks into quarantine while that is shown.
const causesEvery = 10 * time.Second

// Run shows a workload until q is pressed or ctx ends. In and out must be a terminal.
func Run(
	ctx context.Context, cfg pump.Config, o status.Options, in io.Reader, out io.Writer,
) error {
	w, err := status.NewWatcher(cfg, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	m := newModel(ctx, stylesFor(), readings{
		look: func(ctx context.Context) { all.Go(func() { w.Look(ctx) }) },
		rows: w.Rows,
		causes: func(ctx context.Context, s *status.Status) admin.Causes {
			return admin.CausesOf(ctx, cfg, s, w.Pay)
		},
		every: func(s *status.Status) time.Duration { return admin.Every(w, s) },
		past: func(ctx context.Context, after time.Time) ([]status.HistoryPoint, error) {
			if err := w.Pay(ctx); err != nil {
				return nil, err
			}
			return status.History(ctx, cfg, after)
		},
	})
	// The caller handles signals; they end its context.
	_, err = tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil // that is the way to end it
	}
	return err
}

// readings is where the figures come from. All of its work ends with the context that it is given.
type readings struct {
	look   func(context.Context) // begins to look at queues
	rows   func(context.Context) (*status.Status, error)
	causes func(context.Context, *status.Status) admin.Causes
	every  func(*status.Status) time.Duration
	past   func(ctx context.Context, after time.Time) ([]status.HistoryPoint, error)
}

// seenMsg is a reading, causesMsg a look into quarantine, pastMsg the last minutes; dueMsg says
// that the next reading is due. Each belongs to a turn of reading; messages of an earlier turn come
// too late.
type (
	seenMsg struct {
		status *status.Status
		err    error
		turn   int
	}
	causesMsg struct {
		admin.Causes
		turn int
	}
	pastMsg struct {
		points []status.HistoryPoint
		err    error
		turn   int
	}
	dueMsg struct{ turn int }
)

// turn is one reading of the workload, which lasts until the reader holds the figures.
type turn struct {
	number int
	ctx    context.Context // ends with it
	end    context.CancelFunc
}

// read is the command that reads the rows.
func (t turn) read(from readings) tea.Cmd {
	return func() tea.Msg {
		st, err := from.rows(t.ctx)
		return seenMsg{st, err, t.number}
	}
}

// topFlags are the flags of `distributor top`.
type topFlags struct {
	operation
	options status.Options
}

func topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the workload live in a terminal",
		Long: `Show the workload live in a terminal, as the page does: how things stand and what limits
them, and one table at a time of accounts, queues, processes, runs, causes of quarantine,
keys and gates, and problems. It changes nothing.

Press ? for the keys: tab and 1 to 8 choose a table, / filters it, s sorts it, p holds it:
nothing is read then, until p is pressed again.
It makes 25 requests a second at most, so a large workload's queues come one by one.
NO_COLOR=1 shows no colours. Scripts take "status --json".`,
		Example: `  distributor top --config pump.yaml
  NO_COLOR=1 distributor top --config pump.yaml --runs 50`,
		Args: cli.NoArguments(nil),
		RunE: f.run(func(cmd *cobra.Command, _ []string) error { return f.show(cmd) }),
	}
	cmd.Flags().SortFlags = false
	cli.ConfigFlag(cmd, &f.config)
	addReading(cmd, &f.options, 20)
	return cmd
}

func (f *topFlags) show(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	in, isFile := cmd.InOrStdin().(*os.File)
	if _, _, terminal := size(out); !terminal || !isFile || !term.IsTerminal(int(in.Fd())) {
		return cli.Usage("top needs a terminal to show and to read keys from; in a "+
			"script use: %s status",
			cmd.Root().Name())
	}
	if err := checkReading(f.options); err != nil {
		return err
	}
	return Run(cmd.Context(), f.cfg, f.options, in, out)
}

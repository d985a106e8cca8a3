package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/kballard/go-shellquote"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/queuepump/queuepump/bench"
	"github.com/queuepump/queuepump/internal/cli"
)

// Where the results of the source tree stand, seen from its root.
const (
	resultsFile = "bench/results.json"
	entriesFile = "bench/RESULTS.md"
	tableFile   = "docs/performance.md"
	briefFile   = "README.md"
)

func runCommand() *cobra.Command {
	var (
		quick, keep      bool
		only, file, note string
		profiles         string
		rounds           int
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Measure, and print what it comes to",
		Long: `Measure, and print what it comes to in Markdown. With --json FILE it is also written
there, beside what an older FILE came to; "measure render" makes the documents of that.

` + cli.ExitCodes,
		Example: `  measure run --quick --only 'azqueue|one task' --rounds 5
  measure run --quick --only 'in process|floor' --profiles out/profiles
  measure run --json bench/results.json --note 'deletes are pipelined'`,
		Args: cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error {
			s := bench.Full()
			if quick {
				s = bench.Quick()
			}
			if only != "" {
				s.StageTime = 0
			}
			chosen, err := regexp.Compile(only)
			if err != nil {
				return cli.Usage("--only: %w", err)
			}
			s.Runs = slices.DeleteFunc(s.Runs, func(r bench.Run) bool {
				return !chosen.MatchString(fmt.Sprintf("%s %s", r.Way, r.Over))
			})
			if cmd.Flags().Changed("rounds") {
				s.Rounds = rounds
			}
			s.Note, s.Command = note, command(cmd)
			s.Log = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			dir, done, err := workDir(keep)
			if err != nil {
				return err
			}
			defer done()
			s.Dir, s.Profiles = dir, profiles
			if profiles != "" {
				if err := os.MkdirAll(profiles, 0o755); err != nil {
					return err
				}
			}
			return measure(cmd, s, file)
		}),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&quick, "quick", false, "fewer tasks, one round")
	flags.StringVar(&only, "only", "",
		"only the ways that the regular expression `RE` finds, for example 'pump.*TCP', and "+
			"no benchmarks of the parts")
	flags.IntVar(&rounds, "rounds", 0, "how often each way is measured (default 5, with --quick 1)")
	flags.StringVar(&file, "json", "", "write the results to `FILE`")
	flags.StringVar(&profiles, "profiles", "", "leave CPU profiles of the clients in `DIR`")
	flags.StringVar(&note, "note", "",
		"what changed since the results before, for the entry in RESULTS.md")
	flags.BoolVar(&keep, "keep-input", false, "leave the input in out/bench for the next time")
	return cmd
}

// command is what is to be typed for the same measurement.
func command(cmd *cobra.Command) string {
	words := []string{"go", "run", "./bench/measure", "run"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "json" && f.Name != "note" { // they say what becomes of it
			words = append(words, "--"+f.Name+"="+f.Value.String())
		}
	})
	switch command := shellquote.Join(words...); command {
	case "go run ./bench/measure run":
		return "make bench"
	case "go run ./bench/measure run --quick=true":
		return "make bench BENCH=quick"
	default:
		return command
	}
}

func measure(cmd *cobra.Command, s bench.Suite, file string) error {
	r, err := s.Measure(cmd.Context())
	if err != nil {
		return err
	}
	if file != "" {
		older, err := bench.ReadResults(file)
		if err != nil {
			return err
		}
		r.After(older)
		if err := r.Write(file); err != nil {
			return err
		}
	}
	fmt.Fprint(cmd.OutOrStdout(), r.Entry())
	return nil
}

func renderCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "render",
		Short: "Make the newest entry of bench/RESULTS.md and the tables of the " +
			"documents of bench/results.json",
		Long: `Make the newest entry of bench/RESULTS.md and the tables of docs/performance.md and
README.md of bench/results.json.
The status is 1 if a figure misses what it is held to.

` + cli.ExitCodes,
		Args: cobra.NoArgs,
		RunE: cli.Command(func(*cobra.Command) error {
			r, err := bench.ReadResults(resultsFile)
			if err != nil {
				return err
			}
			if r == nil {
				return cli.Usage("there is no %s; run make bench in the root of the source tree", resultsFile)
			}
			documents := map[string]func(string) (string, error){
				entriesFile: r.InsertEntry, tableFile: r.ReplaceTable, briefFile: r.ReplaceBrief,
			}
			for file, render := range documents {
				if err := rewrite(file, render); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
			return r.Missed()
		}),
	}
	return cmd
}

func rewrite(file string, render func(string) (string, error)) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text, err := render(string(old))
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// workDir is a directory for gigabytes of input.
func workDir(keep bool) (dir string, done func(), err error) {
	if keep {
		dir = filepath.Join("out", "bench")
		return dir, func() {}, os.MkdirAll(dir, 0o755)
	}
	dir, err = os.MkdirTemp("", "queuepump-bench-")
	return dir, func() { _ = os.RemoveAll(dir) }, err
}

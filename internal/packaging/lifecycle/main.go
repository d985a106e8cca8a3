// Command lifecycle tries the life of the package for Debian under systemd: an older package is
// installed, instances of it do tasks, one is stopped and started, all are upgraded in the middle
// and take an account more by a reload; then the package is removed and purged. It fails if a task
// was lost or done twice, or if anything is left. systemd is booted by systemd-nspawn on a copy of
// this machine's root, which is an overlay in memory, so that nothing is installed here. `make
// service-test` calls it in the root of the source tree. With -first-hour it types the commands of
// README.md there instead, as `make first-hour` does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
)

const (
	statusFailed = 1
	// statusUntried is what test programs of autotools and meson end with when they skip.
	statusUntried = 77
)

// olderCommit is the first commit whose package works as a service: its units are of type exec, and
// its binaries tell systemd nothing. Earlier packages waited for a notice that no binary gave.
const olderCommit = "3fb8d6ee89f1"

// untried is why this machine cannot try it.
type untried struct{ why string }

func (u untried) Error() string { return u.why }

func main() {
	var o options
	flag.StringVar(&o.build, "build", "", "the program internal/packaging/build, built")
	flag.StringVar(&o.loadtest, "loadtest", "", "the program loadtest, built")
	flag.StringVar(&o.out, "out", "out/service", "the `folder` for packages and logs")
	flag.IntVar(&o.tasks, "tasks", 100_000, "how many tasks are done meanwhile")
	flag.Float64Var(&o.rate, "rate", 1500, "how many tasks a second all processors start at most")
	flag.StringVar(&o.older, "older", "",
		"a deb to begin with (default: one of the commit "+olderCommit+")")
	flag.StringVar(&o.newer, "newer", "", "the deb to upgrade to (default: one of this source tree)")
	flag.StringVar(&o.stuck, "stuck", "",
		"a processor whose poller can be stuck (default: built here)")
	flag.BoolVar(&o.firstHour, "first-hour", false,
		"type what README.md says instead, from an empty folder to a service that is watched")
	flag.StringVar(&o.desk, "desk", "",
		"for the program itself: the `folder` in which README.md is typed")
	flag.StringVar(&o.base, "inside", "", "for the program itself: the `folder` to mount at")
	flag.Parse()

	err := run(o)
	var u untried
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() > 0 && o.base == "":
		os.Exit(exit.ExitCode()) // the process apart has said why
	case errors.As(err, &u):
		fmt.Fprintln(os.Stderr, "It could not be tried:", u.why)
		os.Exit(statusUntried)
	default:
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(statusFailed)
	}
}

type options struct {
	build, loadtest, out, older, newer, stuck, base, desk string
	tasks                                                 int
	rate                                                  float64
	firstHour                                             bool
}

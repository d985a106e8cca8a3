package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// cores says where client and server work. On cores that both shared, the same build took 3.2 to
// 3.8 times the floor, by what else was at work: the server's work was in the client's caches,
// and the client's threads waited for each other's locks.
type cores struct {
	client, server int
	pinned         bool
}

// ownCores are the first two cores that this process may use, if there are two and taskset is
// here, which is of Linux.
func ownCores() (c cores) {
	allowed := coreList(statusLine("Cpus_allowed_list"))
	if _, err := exec.LookPath("taskset"); err != nil || len(allowed) < 2 {
		return c
	}
	return cores{server: allowed[0], client: allowed[1], pinned: true}
}

// String is what the results say of it.
func (c cores) String() string {
	if !c.pinned {
		return "client and server are not pinned (that takes two cores and taskset); GOMAXPROCS=1 each"
	}
	return fmt.Sprintf("client on core %d, server on core %d, GOMAXPROCS=1 each", c.client, c.server)
}

// command is a command on a core, with one processor for Go.
func (c cores) command(ctx context.Context, core int, name string, args ...string) *exec.Cmd {
	if c.pinned {
		args = append([]string{"--cpu-list", strconv.Itoa(core), name}, args...)
		name = "taskset" // it becomes the command: the process id is the same
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	return cmd
}

// coreList reads a list of cores as Linux writes it: "0-3,8".
func coreList(text string) (list []int) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				return nil
			}
		}
		for core := from; core <= to; core++ {
			list = append(list, core)
		}
	}
	return list
}

// statusLine is a line of what Linux says of this process; "" elsewhere.
func statusLine(name string) string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

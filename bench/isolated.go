package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// Client and simulator are processes of their own, on a core each, so that what the operating
// system says of one is of that one alone. Both are this program, started again in a
// role: a program that measures calls PlayRole first of all.

// roleVariable names the role in the environment of a child.
const roleVariable = "QUEUEPUMP_BENCH_ROLE"

const (
	roleSimulator = "simulator"
	roleClient    = "client"
)

// PlayRole never returns in a process that [Measure] started. Every program that measures,
// the tests too, calls it before it does anything else.
func PlayRole() {
	role := os.Getenv(roleVariable)
	if role == "" {
		return
	}
	roles := map[string]func(context.Context, io.Reader, io.Writer) error{
		roleSimulator: simulate, roleClient: client,
	}
	play, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "bench: there is no role %q\n", role)
		os.Exit(2)
	}
	if err := play(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child is this program, started again in a role. It and its parent talk in JSON values.
type child struct {
	role   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr bytes.Buffer
	end    func() error // closes the child's input, upon which it ends; more than once is once
}

func startChild(ctx context.Context, role string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	on := ownCores()
	core := on.client
	if role == roleSimulator {
		core = on.server
	}
	c := &child{role: role, cmd: on.command(ctx, core, self)}
	c.end = sync.OnceValue(c.wait)
	c.cmd.Env = append(c.cmd.Env, roleVariable+"="+role)
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.out = json.NewDecoder(out)
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	return c, err
}

// ask sends one value and reads the answer. A child that cannot answer has ended, and
// the error says how.
func (c *child) ask(question, answer any) error {
	err := json.NewEncoder(c.in).Encode(question)
	if err == nil {
		err = c.out.Decode(answer)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the %s did not answer: %w", c.role, err), c.end())
	}
	return nil
}

func (c *child) wait() error {
	_ = c.in.Close() // it may have ended already
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the %s: %w\n%s", c.role, err, c.stderr.String())
	}
	return nil
}

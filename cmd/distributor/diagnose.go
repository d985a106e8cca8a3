package main

import (
	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/diagnose"
)

// diagnosing are the commands that find out what is wrong, which the processor has too.
func diagnosing() []*cobra.Command { return []*cobra.Command{diagnose.Doctor(), diagnose.Peek()} }

//go:build !linux

package handlers

import "os/exec"

// startTied starts a child. Only Linux can tie it to our own life: elsewhere it
// outlives a killed processor until it reads the end of its input.
func startTied(c *exec.Cmd) error { return c.Start() }

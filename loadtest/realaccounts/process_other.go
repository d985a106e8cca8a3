//go:build !linux

package realaccounts

import "os/exec"

// dieWithParent does nothing where no kernel does it: children of a run that was killed go on until
// an operator ends them.
func dieWithParent(*exec.Cmd) {}

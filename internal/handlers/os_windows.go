package handlers

import "os"

// lock is not there on Windows: see to it that each processor has a file of its own.
func lock(*os.File) error { return nil }

// syncDir has nothing to do: a directory cannot be synced on Windows.
func syncDir(string) error { return nil }

// hasName: a file that is open cannot be deleted on Windows.
func hasName(*os.File) bool { return true }

// Command overlay writes a build with all mutants into a folder, for go test -overlay.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/queuepump/queuepump/internal/proof"
)

func main() {
	out := flag.String("o", "out/mutants", "the folder, which is written anew")
	flag.Parse()
	root, err := proof.Root()
	if err == nil {
		_, err = proof.Overlay(root, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

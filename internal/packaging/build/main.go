// Command build makes what goreleaser cannot: `files`, which packages and archives hold beside the
// programs, `image`, which needs no daemon, and `deb`, a package of this machine within a minute.
// It runs in the root of the source tree; .goreleaser.yaml and the Makefile call it.
package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// programs are what is installed, each with its source. loadtest serves simulated accounts, so that
// what the others say of it can be typed; azsim does that alone, for tests of any language.
var programs = map[string]string{
	"distributor": "./cmd/distributor", "processor": "./cmd/processor", "loadtest": "./loadtest",
	"azsim": "./loadtest/azsim/cmd/azsim",
}

// platform is what a program is built for.
type platform struct{ os, arch string }

var (
	linux     = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	platforms = append(linux[:2:2], platform{"darwin", "amd64"}, platform{"darwin", "arm64"},
		platform{"windows", "amd64"}, platform{"windows", "arm64"})
)

func main() {
	var out, version string
	root := &cobra.Command{Use: "build", SilenceUsage: true}
	root.PersistentFlags().StringVar(&out, "out", "out", "the folder to write to")
	root.PersistentFlags().StringVar(&version, "version", "",
		"the version, as in v1.2.3 (default: that of git)")
	add := func(name, short string, run func(b *build) error) {
		root.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				r, err := currentRelease(version)
				if err != nil {
					return err
				}
				return run(&build{release: r, out: out})
			},
		})
	}
	add("files", "make what is beside the programs", func(b *build) error {
		return b.files(filepath.Join(b.out, "files"), platforms...)
	})
	add("image", "make the images", (*build).image)
	add("deb", "make the deb of this machine's architecture", (*build).deb)
	if root.Execute() != nil {
		os.Exit(1)
	}
}

// build is one run of the program.
type build struct {
	release
	out string
}

// binary builds a program, static and stripped, as the linker names its revision.
func (b *build) binary(name, to string, p platform, flags ...string) error {
	args := append(append([]string{"build"}, flags...),
		"-buildvcs=false", "-ldflags", "-s -w -X "+revisionVariable+"="+b.revision,
		"-o", filepath.Join(to, name), programs[name])
	return b.run([]string{"GOOS=" + p.os, "GOARCH=" + p.arch}, goTool(), args...)
}

// revisionVariable is what Revision of internal/cli gives if the linker has set it.
const revisionVariable = "github.com/queuepump/queuepump/internal/logs.revision"

// goTool is the go command, as the Makefile names it.
func goTool() string { return cmp.Or(os.Getenv("GO"), "go") }

// native is this machine.
func native() platform { return platform{runtime.GOOS, runtime.GOARCH} }

// run runs a command with variables of its own, and shows it.
func (b *build) run(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	// What knows the variable writes this time instead of the present one.
	epoch := strconv.FormatInt(b.when.Unix(), 10)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "SOURCE_DATE_EPOCH="+epoch), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	fmt.Fprintln(os.Stderr, strings.Join(append(env, cmd.Args...), " "))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}

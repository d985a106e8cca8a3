// Command build makes the releases of the binaries. `packages` (deb, rpm and tar.gz with their
// checksums) and `image` (for containers) are for each of the [architectures], `deb` is for this
// machine's alone. The command runs in the root of the source tree; `make package`, `make image`
// and `make service-test` call it.
package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
)

var architectures = []string{"amd64", "arm64"}

// programs are what packages install, each with its source. loadtest serves simulated accounts, so
// that what the others say of it can be typed.
var programs = map[string]string{
	"distributor": "./cmd/distributor", "processor": "./cmd/processor", "loadtest": "./loadtest",
}

func main() {
	var out, version string
	root := &cobra.Command{Use: "build", SilenceUsage: true}
	root.PersistentFlags().StringVar(&out, "out", "out", "the folder to write to")
	root.PersistentFlags().StringVar(&version, "version", "",
		"the version, as in 1.2.3 (default: that of git)")
	add := func(name, short string, run func(b *build) error) {
		root.AddCommand(&cobra.Command{
			Use: name, Short: short, Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error {
				b, err := newBuild(out, version)
				if err != nil {
					return err
				}
				return run(b)
			},
		})
	}
	add("packages", "make deb, rpm, tar.gz and SHA256SUMS", (*build).packages)
	add("image", "make the image", (*build).image)
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

func newBuild(out, version string) (*build, error) {
	r, err := currentRelease(version)
	return &build{out: out, release: r}, err
}

// built is the folder with the binaries of an architecture, with their completions.
func (b *build) built(arch string) string { return filepath.Join(b.out, "built", arch) }

// binaries builds both for an architecture: static, and the same on every machine. Their copyright
// file stands beside them.
func (b *build) binaries(arch string) error {
	for name, source := range programs {
		err := b.run([]string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch},
			goTool(), "build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -X "+revisionVariable+"="+b.revision,
			"-o", filepath.Join(b.built(arch), name), source)
		if err != nil {
			return err
		}
	}
	return b.copyright(arch)
}

// revisionVariable is what Revision of internal/cli gives if the linker has set it.
const revisionVariable = "github.com/queuepump/queuepump/internal/cli.revision"

// goTool is the go command, as the Makefile names it.
func goTool() string { return cmp.Or(os.Getenv("GO"), "go") }

// run runs a command with variables of its own, and shows it.
func (b *build) run(env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	// Archives and compilers that know the variable write this time instead of the present one.
	epoch := strconv.FormatInt(b.when.Unix(), 10)
	cmd.Env = append(append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	fmt.Fprintln(os.Stderr, cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}

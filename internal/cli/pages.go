//go:build packaging

package cli

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Main writes the man pages and the completions of the program below a folder, its argument, as
// packages hold them below /usr/share. Only programs that make packages are built with this tag.
func Main(program func() *cobra.Command, _ func()) {
	root, to := program(), os.Args[1]
	prepare(root)
	root.DisableAutoGenTag = true
	name := root.Name()
	var err error
	if root.HasSubCommands() { // azsim, which has none, does not answer what completions ask
		err = errors.Join(
			root.GenBashCompletionFileV2(filepath.Join(to, "bash-completion/completions", name), true),
			root.GenFishCompletionFile(filepath.Join(to, "fish/vendor_completions.d", name+".fish"), true),
			// Debian's zsh looks into a folder of its own.
			root.GenZshCompletionFile(filepath.Join(to, "zsh/vendor-completions/_"+name)),
			root.GenZshCompletionFile(filepath.Join(to, "zsh/site-functions/_"+name)))
	}
	every(root, func(cmd *cobra.Command) {
		if cmd == root || cmd.IsAvailableCommand() && !cmd.IsAdditionalHelpTopicCommand() {
			err = errors.Join(err, page(cmd, filepath.Join(to, "man/man1")))
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// indented are lines that stand as they are written, as in a table.
var indented = regexp.MustCompile(`(?m)^ +.*(\n +.*)*`)

func page(cmd *cobra.Command, to string) error {
	f, err := os.Create(filepath.Join(to, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1.gz"))
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	cmd.Long = indented.ReplaceAllString(cmd.Long, "\n```\n$0\n```\n")
	err = doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Source: "queuepump"}, z)
	return errors.Join(err, z.Close(), f.Close())
}

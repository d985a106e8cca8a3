package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// twin is the environment variable that also gives a flag: QUEUEPUMP_MAX_RATE for --max-rate.
func twin(flag string) string {
	return "QUEUEPUMP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

const aboutTwins = `
Each flag may stand in the environment too, as QUEUEPUMP_MAX_RATE for --max-rate; the command line
wins.
`

// fromTwins gives the flags that the command line lacks and the environment has. A variable that is
// empty gives nothing. A flag that may be repeated has a line of its variable for each value.
// --help and the like have no variable.
func fromTwins(cmd *cobra.Command, _ []string) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(twin(f.Name))
		text := strings.HasPrefix(f.Name, "help") || f.Name == "version"
		if value == "" || f.Changed || err != nil || text {
			return
		}
		_ = cmd.Flags().SetAnnotation(f.Name, byTwin, nil)
		values := []string{value}
		if _, repeated := f.Value.(pflag.SliceValue); repeated {
			values = strings.Split(strings.TrimSuffix(value, "\n"), "\n")
		}
		for _, value := range values {
			if err == nil {
				err = cmd.Flags().Set(f.Name, value)
			}
		}
	})
	return err
}

// byTwin is the annotation of a flag that the environment has given.
const byTwin = "by-environment"

var flagName = regexp.MustCompile(`--[a-z][a-z-]*`)

// twinsIn adds to each flag in the text of an error the variable that gave it, if one did.
func twinsIn(cmd *cobra.Command, text string) (lines []string) {
	names := flagName.FindAllString(text, -1)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, is := f.Annotations[byTwin]; is && slices.Contains(names, "--"+f.Name) {
			lines = append(lines, "--"+f.Name+" is given by the environment variable "+twin(f.Name))
		}
	})
	return lines
}

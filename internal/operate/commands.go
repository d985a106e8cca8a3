package operate

import (
	"strings"

	"github.com/spf13/cobra"
)

// The groups of commands in the help of a binary, by purpose.
const (
	GroupSend    = "send"
	GroupProcess = "process"

	groupWatch   = "watch"
	groupOperate = "operate"
	groupPlan    = "plan"
)

// Add adds all commands of operators to the distributor.
func Add(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: GroupSend, Title: "Send:"}, &cobra.Group{ID: groupWatch, Title: "Watch:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"}, &cobra.Group{ID: groupPlan, Title: "Plan:"},
	)
	add(root, groupWatch, statusCommand(), runsCommand(
		"List, show, wait for, repair and end runs",
		runsList(), runsShow(), wait(), repair(), runsEnd()), counts(), resultsCommand(),
		quarantineCommand("List, show, redrive or drop what is in quarantine",
			quarantineList(), quarantineShow(), quarantineRedrive(), quarantineDrop()),
		doctorCommand(), peekCommand(), pageCommand(), topCommand())
	add(root, groupOperate, accountsCommand(), workload(), gate(), ids())
	add(root, groupPlan, plan(), generateCommand())
}

// AddReading adds the commands that only look to the processor.
func AddReading(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: GroupProcess, Title: "Process:"}, &cobra.Group{ID: groupWatch, Title: "Watch:"},
		&cobra.Group{ID: groupPlan, Title: "Plan:"},
	)
	add(root, groupWatch,
		statusCommand(), runsCommand("List and show runs", runsList(), runsShow()), counts(),
		resultsCommand(),
		quarantineCommand("List and show what is in quarantine", quarantineList(), quarantineShow()),
		doctorCommand(), peekCommand(), topCommand())
	add(root, groupPlan, plan())
	for _, c := range root.Commands() {
		ofProcessor(c)
	}
}

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
	}
	root.AddCommand(commands...)
}

// ofProcessor makes the examples of a command, and of commands below it, name the processor.
func ofProcessor(cmd *cobra.Command) {
	own := strings.TrimPrefix(cmd.CommandPath(), "processor")
	cmd.Example = strings.ReplaceAll(cmd.Example, "distributor"+own, "processor"+own)
	for _, c := range cmd.Commands() {
		ofProcessor(c)
	}
}

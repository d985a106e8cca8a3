package operate

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/queuepump/queuepump/internal/admin"
	"github.com/queuepump/queuepump/internal/cli"
	"github.com/queuepump/queuepump/internal/logs"
)

// generateFlags are the flags of `distributor generate KIND`.
type generateFlags struct {
	options admin.GenerateOptions
	out     string
}

// generated says what each kind is, and how it is used.
var generated = map[string][2]string{
	"alerts": {
		"Alert rules for Prometheus",
		`  distributor generate alerts > /etc/prometheus/rules/queuepump.yaml
  promtool check rules /etc/prometheus/rules/queuepump.yaml`,
	},
	"grafana": {
		"A dashboard for Grafana", `  distributor generate grafana --workload cities > dashboard.json`,
	},
	"kubernetes": {
		"Deployments with probes for Kubernetes",
		`  distributor generate kubernetes --name cities --image registry.example/cities:1 > cities.yaml
  kubectl apply --dry-run=server -f cities.yaml`,
	},
	"kubernetes-job": {
		"A CronJob of named runs for Kubernetes",
		`  distributor generate kubernetes-job --name cities --image registry.example/cities > night.yaml
  kubectl apply --dry-run=server -f night.yaml
  kubectl create job --from=cronjob/cities-nightly cities-today`,
	},
	"keda": {
		"A ScaledObject that scales processors by the backlog",
		`  distributor generate keda --name cities --namespace work --workload cities |
      kubectl apply -f -`,
	},
	"bicep": {
		"Storage accounts and roles in Bicep",
		`  distributor generate bicep --account pumpone --account pumptwo > accounts.bicep
  az deployment group create --resource-group pump --template-file accounts.bicep`,
	},
	"terraform": {
		"Storage accounts and roles in Terraform",
		`  distributor generate terraform --account pumpone --account pumptwo > accounts.tf
  terraform plan -var resource_group=pump`,
	},
}

func generateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Print files for monitoring, deployment and accounts",
		Long: `Print files that fit this version: alert rules and a dashboard on its metrics
(docs/metrics.md), with what to do about each alert in docs/runbook.md; manifests and a
ScaledObject; the storage accounts with the roles that the pump needs. Nothing is asked of Azure,
and no configuration is read.`,
	}
	for _, kind := range admin.GeneratedKinds() {
		cmd.AddCommand(generateKind(kind))
	}
	return cli.Group(cmd)
}

func generateKind(kind string) *cobra.Command {
	var f generateFlags
	about := generated[kind]
	cmd := &cobra.Command{
		Use: kind, Short: about[0], Long: about[0] + ", for this version.", Example: about[1],
		Args: cobra.NoArgs,
		RunE: cli.Command(func(cmd *cobra.Command) error { return f.run(cmd.OutOrStdout(), kind) }),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	o := &f.options
	flags.StringVar(&o.Name, "name", "queuepump", "how it is called there")
	switch kind {
	case "alerts", "grafana", "keda":
		flags.StringVar(&o.Workload, "workload", "",
			"the workload (default: "+
				map[bool]string{true: "as --name", false: "all of them"}[kind == "keda"]+")")
	case "bicep", "terraform":
		flags.StringArrayVar(&o.Accounts, "account", nil,
			"a storage account to make, `NAME`; once for each")
		flags.StringVar(&o.Location, "location", "westeurope", "the region of the accounts")
	}
	switch kind {
	case "keda":
		flags.StringVar(&o.Prometheus, "prometheus", "http://prometheus-server.monitoring.svc:80",
			"the `URL` where KEDA asks")
		flags.StringVar(&o.Namespace, "namespace", "default", "of Kubernetes")
	case "kubernetes", "kubernetes-job":
		flags.StringVar(&o.Namespace, "namespace", "default", "of Kubernetes")
		flags.StringVar(&o.Image, "image", "",
			"that holds the pump and your worker (default queuepump:VERSION)")
	}
	flags.StringVar(&f.out, "out", "", "write into this `FOLDER` and do not print")
	return cmd
}

func (f *generateFlags) run(out io.Writer, kind string) error {
	f.options.Version = logs.Revision()
	file, err := admin.Generate(kind, f.options)
	if err != nil {
		return cli.Usage("%w", err)
	}
	if f.out == "" {
		_, err = io.WriteString(out, file.Text)
		return err
	}
	path := filepath.Join(f.out, file.Name)
	if err := os.WriteFile(path, []byte(file.Text), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, path)
	return err
}

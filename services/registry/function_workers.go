package registry

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// functionInfo says who serves a function.
func (s *Service) functionInfo(_ context.Context, q protocol.FunctionInfoRequest) (protocol.FunctionDetail, error) {
	f := protocol.FunctionSpec{Namespace: cmp.Or(q.Namespace, protocol.DefaultNamespace), ID: q.FunctionID}
	info := protocol.FunctionDetail{FunctionID: f.ID, Namespace: f.Namespace}
	if err := cmp.Or(scope.CheckNamespace(f.Namespace), scope.CheckFunction(f.ID)); err != nil {
		return info, err
	}
	if own := ownWorker(f); own != "" {
		info.Workers = []string{own}
	} else {
		info.Workers = s.known.servers(f)
	}
	if len(info.Workers) == 0 {
		return info, protocol.Errorf(protocol.CodeFunctionNotFound, "nobody serves function %s in namespace %s: start its worker", f.ID, f.Namespace)
	}
	info.WorkerName = info.Workers[0]
	return info, nil
}

// servers are the names of the workers that serve a function.
func (d *directory) servers(f protocol.FunctionSpec) []string {
	var names []string
	for _, doc := range d.all() {
		if slices.ContainsFunc(doc.Functions, func(served protocol.ServedFunction) bool { return served.FunctionSpec == f }) {
			names = append(names, doc.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ownWorker is the name under which the mesh serves a function; "" if it is none
// of its own.
func ownWorker(f protocol.FunctionSpec) string {
	switch {
	case slices.Contains(protocol.ProjectFunctions(), f.ID), private[f.ID] != "":
		return protocol.MeshWorker
	case f.Namespace == protocol.DefaultNamespace && slices.Contains(protocol.ProviderFunctions(), f.ID):
		return protocol.ProviderWorker
	default:
		return ""
	}
}

// workersList lists workers without their ids, which are theirs alone. The mesh
// is among them: in each namespace that somebody is in.
func (s *Service) workersList(_ context.Context, q protocol.WorkersListRequest) (protocol.WorkersList, error) {
	if q.Namespace != "" {
		if err := scope.CheckNamespace(q.Namespace); err != nil {
			return protocol.WorkersList{}, err
		}
	}
	namespaces := map[string]bool{cmp.Or(q.Namespace, protocol.DefaultNamespace): true}
	all := []protocol.ListedWorker{}
	for _, doc := range s.known.all() {
		namespaces[namespaceOf(&doc.Worker)] = true
		all = append(all, listed(&doc.Worker))
	}
	for namespace := range namespaces {
		all = append(all, ofMesh(protocol.MeshWorker, namespace, protocol.ProjectFunctions()))
	}
	all = append(all, ofMesh(protocol.ProviderWorker, protocol.DefaultNamespace, protocol.ProviderFunctions()))
	all = slices.DeleteFunc(all, func(w protocol.ListedWorker) bool { return q.Namespace != "" && w.Namespace != q.Namespace })
	slices.SortStableFunc(all, func(a, b protocol.ListedWorker) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ConnectedAt, b.ConnectedAt))
	})
	return protocol.WorkersList{Workers: all}, nil
}

const connected = "connected"

func listed(w *protocol.Worker) protocol.ListedWorker {
	one := ofMesh(w.Name, namespaceOf(w), []string{})
	one.ConnectedAt = w.Since.UnixMilli()
	for _, f := range w.Functions {
		one.Functions = append(one.Functions, f.ID)
	}
	slices.Sort(one.Functions)
	one.Functions = slices.Compact(one.Functions)
	one.Count = len(one.Functions)
	return one
}

func ofMesh(name, namespace string, functions []string) protocol.ListedWorker {
	return protocol.ListedWorker{Name: name, Namespace: namespace, Status: connected, Functions: functions, Count: len(functions)}
}

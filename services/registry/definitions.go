package registry

import (
	"context"
	"maps"
	"slices"
	"sort"

	"github.com/waybill-mq/waybill/pkg/protocol"
)

// withDefault are the queues there are: the one called default always is.
func withDefault(queues map[string]protocol.QueueDefinition) map[string]protocol.QueueDefinition {
	if _, defined := queues[protocol.DefaultQueue]; defined {
		return queues
	}
	all := maps.Clone(queues)
	if all == nil {
		all = make(map[string]protocol.QueueDefinition, 1)
	}
	all[protocol.DefaultQueue] = protocol.DefaultQueueDefinition()
	return all
}

// listDefinitions lists the named queues in order of name.
func (s *Service) listDefinitions(ctx context.Context, q protocol.DefinitionsRequest) (protocol.DefinitionsPage, error) {
	page := protocol.DefinitionsPage{Queues: []protocol.DefinedQueue{}}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return page, err
	}
	doc, err := s.store.definitions(ctx)
	if err != nil {
		return page, err
	}
	queues := withDefault(doc.Queues)
	page.Revision = doc.revision
	if q.Queue != "" {
		if d, known := queues[q.Queue]; known {
			page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: q.Queue, Config: d})
		}
		return page, nil
	}
	names := slices.Sorted(maps.Keys(queues))
	from := sort.Search(len(names), func(i int) bool { return names[i] > q.After })
	to := min(from+min(limit, pageWeight), len(names))
	for _, name := range names[from:to] {
		page.Queues = append(page.Queues, protocol.DefinedQueue{Queue: name, Config: queues[name]})
	}
	page.More = to < len(names)
	return page, nil
}

package registry

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/waybill-mq/waybill/internal/books"
	"github.com/waybill-mq/waybill/internal/config"
	"github.com/waybill-mq/waybill/internal/ledger"
	"github.com/waybill-mq/waybill/internal/mesh"
	"github.com/waybill-mq/waybill/pkg/protocol"
	"github.com/waybill-mq/waybill/pkg/scope"
)

// define defines a named queue, or changes it. It is answered when that is
// stored and the router that owns the queue's lane does as it says. Of two
// changes of one queue at the same time the second is CONFLICT.
func (s *Service) define(ctx context.Context, q protocol.DefineRequest) (protocol.DefineReply, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if err := checkQueueName(q.Queue); err != nil {
		return protocol.DefineReply{}, err
	}
	wanted, err := protocol.ParseQueueDefinition(q.Config)
	if err != nil {
		return protocol.DefineReply{}, err
	}
	given, err := config.ParseDocument(orEmpty(q.Config))
	if err != nil {
		return protocol.DefineReply{}, err
	}
	edit, err := s.editConfig(ctx, configEdit{by: "define", change: func(now *configState) (config.Document, error) {
		if sameDefinition(definitionOf(now.config(), q.Queue), &wanted) {
			return now.doc.set, nil
		}
		return redefined(now.doc.set, q.Queue, config.Document{}.Merge(given)), nil
	}})
	if err != nil {
		return protocol.DefineReply{}, err
	}
	if len(edit.differences) == 0 { // the queue may still be on its way to the lane
		_, err = s.redefine(ctx, protocol.LaneDefinition{Queue: q.Queue, Config: &wanted, Revision: edit.after.doc.revision})
	}
	return protocol.DefineReply{
		Queue: q.Queue, Changed: len(edit.differences) > 0, Revision: edit.after.doc.revision, Warnings: append(wanted.Warnings(), edit.warnings...),
	}, err
}

func orEmpty(object json.RawMessage) json.RawMessage {
	if len(object) == 0 {
		return json.RawMessage("{}")
	}
	return object
}

// redefined is a document with another definition of a queue; nil takes it out.
func redefined(set config.Document, queue string, definition config.Document) config.Document {
	if all, _ := set["queue_configs"].(map[string]any); all[queue] != nil {
		set = set.Merge(config.Document{"queue_configs": map[string]any{queue: nil}})
	}
	if definition == nil {
		return set
	}
	return set.Merge(config.Document{"queue_configs": map[string]any{queue: map[string]any(definition)}})
}

// checkQueueName refuses what is no name of a named queue. Who gives none, or one
// in spaces, has made another mistake than to choose a bad name.
func checkQueueName(name string) error {
	if strings.TrimSpace(name) != name || name == "" {
		return protocol.Errorf(protocol.CodeInvalidArgs, "the name of a queue is %.64q: it is not blank, and has no space around it", name)
	}
	if err := scope.CheckQueue(name); err != nil {
		return err
	}
	return scope.CheckReserved(name)
}

// definitionOf is a queue's definition, nil if it has none.
func definitionOf(c *protocol.Config, queue string) *protocol.QueueDefinition {
	if d, defined := c.QueueConfigs[queue]; defined {
		return &d
	}
	return nil
}

func sameDefinition(a, b *protocol.QueueDefinition) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// checkChange refuses what may not change while a queue is there.
func checkChange(queue string, now, wanted *protocol.QueueDefinition) error {
	if now == nil || wanted == nil || now.MaxPriority == wanted.MaxPriority {
		return nil
	}
	return protocol.Errorf(protocol.CodeConflict, "max_priority of the queue %s is %d and cannot become %d: remove the queue and define it anew, or define another", queue, now.MaxPriority, wanted.MaxPriority)
}

// removeQueue removes the definition of a named queue that holds nothing, or of
// which all is to be discarded. What is dead of it stays.
func (s *Service) removeQueue(ctx context.Context, q protocol.QueueRemoveRequest) (protocol.QueueRemoved, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	reply := protocol.QueueRemoved{Queue: q.Queue}
	if err := checkQueueName(q.Queue); err != nil {
		return reply, err
	}
	edit, err := s.editConfig(ctx, configEdit{by: "queue remove", purge: q.Purge, change: func(now *configState) (config.Document, error) {
		return redefined(now.doc.set, q.Queue, nil), nil
	}})
	if err != nil {
		return reply, err
	}
	reply.Removed, reply.Revision, reply.Discarded = len(edit.differences) > 0, edit.after.doc.revision, edit.discarded
	return reply, nil
}

// regroups says whether jobs would be in other groups than they were given.
func regroups(now, wanted *protocol.QueueDefinition) bool {
	return now != nil && wanted != nil && wanted.Type == protocol.TypeFIFO &&
		(now.Type != protocol.TypeFIFO || now.MessageGroupField != wanted.MessageGroupField)
}

// checkEmpty refuses a queue that holds jobs: CONFLICT, with what to do.
func (s *Service) checkEmpty(ctx context.Context, queue, cure string) error {
	has, err := s.redefine(ctx, protocol.LaneDefinition{Queue: queue, Check: true})
	if err != nil {
		return err
	}
	waiting, err := mesh.Request[protocol.WaitingPage](ctx, s.nc, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: scope.JobsQueue(queue), Limit: 1})
	if err != nil {
		return err
	}
	if len(waiting.Away) > 0 {
		return books.Unasked(waiting.Away)
	}
	if n := has.Jobs + waiting.Total; n > 0 {
		return protocol.Errorf(protocol.CodeConflict, "the queue %s holds %d jobs: %s", queue, n, cure)
	}
	return nil
}

// redefine tells the owner of a queue's lane, until one has confirmed it: a lane
// that moves has none for a moment.
func (s *Service) redefine(ctx context.Context, q protocol.LaneDefinition) (told protocol.LaneDefined, err error) {
	total, err := s.lanes(ctx)
	if err != nil {
		return told, err
	}
	lane := ledger.Name("router", ledger.Of(scope.JobsQueue(q.Queue), total))
	err = s.untilConfirmed(ctx, lane, func(ctx context.Context) error {
		told, err = mesh.Request[protocol.LaneDefined](ctx, s.nc, protocol.SubjectLane+lane+"."+protocol.VerbDefine, q)
		return err
	})
	return told, err
}

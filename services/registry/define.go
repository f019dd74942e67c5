package registry

import (
	"context"
	"errors"
	"maps"
	"strings"

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
	edit, err := s.editDefinitions(ctx, q.Queue, &wanted)
	if err != nil {
		return protocol.DefineReply{}, err
	}
	_, err = s.redefine(ctx, protocol.LaneDefinition{Queue: q.Queue, Config: &wanted, Revision: edit.revision})
	return protocol.DefineReply{Queue: q.Queue, Changed: edit.changed, Revision: edit.revision, Warnings: wanted.Warnings()}, err
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

// edited is what became of a change of the definitions.
type edited struct {
	revision uint64 // of the configuration that has it
	changed  bool
}

// editDefinitions makes wanted the definition of a queue; nil removes it. Others'
// changes meanwhile, of other queues, stand.
func (s *Service) editDefinitions(ctx context.Context, queue string, wanted *protocol.QueueDefinition) (edited, error) {
	var first *protocol.QueueDefinition
	for again := false; ; again = true {
		doc, err := s.store.definitions(ctx)
		if err != nil {
			return edited{}, err
		}
		now := definitionOf(doc.Queues, queue)
		switch {
		case sameDefinition(now, wanted):
			return edited{revision: doc.revision}, nil
		case again && !sameDefinition(now, first):
			return edited{}, protocol.Errorf(protocol.CodeConflict, "the queue %s was changed by somebody else at the same time, and is as they said: look at it, and change it again if need be", queue)
		}
		first = now
		if err := checkChange(queue, now, wanted); err != nil {
			return edited{}, err
		}
		doc.Queues = maps.Clone(doc.Queues)
		if wanted == nil {
			delete(doc.Queues, queue)
		} else {
			if doc.Queues == nil {
				doc.Queues = make(map[string]protocol.QueueDefinition, 1)
			}
			doc.Queues[queue] = *wanted
		}
		if err := s.store.putDefinitions(ctx, doc); errors.Is(err, errMoved) {
			continue
		} else if err != nil {
			return edited{}, err
		}
		s.tellConfig(doc.revision)
		return edited{revision: doc.revision, changed: true}, nil
	}
}

// definitionOf is a queue's definition, nil if it has none.
func definitionOf(queues map[string]protocol.QueueDefinition, queue string) *protocol.QueueDefinition {
	if d, defined := queues[queue]; defined {
		return &d
	}
	return nil
}

func sameDefinition(a, b *protocol.QueueDefinition) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// checkChange refuses what may not change while a queue is there.
func checkChange(queue string, now, wanted *protocol.QueueDefinition) error {
	if queue == protocol.DefaultQueue && now == nil {
		d := protocol.DefaultQueueDefinition()
		now = &d
	}
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
	if !q.Purge {
		if err := s.checkEmpty(ctx, q.Queue); err != nil {
			return reply, err
		}
	}
	edit, err := s.editDefinitions(ctx, q.Queue, nil)
	if err != nil {
		return reply, err
	}
	reply.Removed, reply.Revision = edit.changed, edit.revision
	told, err := s.redefine(ctx, protocol.LaneDefinition{Queue: q.Queue, Purge: q.Purge, Revision: edit.revision})
	if err != nil || !q.Purge {
		return reply, err
	}
	waiting, err := mesh.Request[protocol.WaitingActReply](ctx, s.nc, protocol.SubjectWaitingCancel, protocol.WaitingActRequest{Queue: scope.JobsQueue(q.Queue)})
	reply.Discarded = told.Discarded + waiting.Count
	return reply, err
}

// checkEmpty refuses a queue that holds jobs: CONFLICT.
func (s *Service) checkEmpty(ctx context.Context, queue string) error {
	has, err := s.redefine(ctx, protocol.LaneDefinition{Queue: queue, Check: true})
	if err != nil {
		return err
	}
	waiting, err := mesh.Request[protocol.WaitingPage](ctx, s.nc, protocol.SubjectWaitingList, protocol.WaitingListRequest{Queue: scope.JobsQueue(queue), Limit: 1})
	if err != nil {
		return err
	}
	if n := has.Jobs + waiting.Total; n > 0 {
		return protocol.Errorf(protocol.CodeConflict, "the queue %s holds %d jobs: let them be done first, or say that they are to be discarded (purge)", queue, n)
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

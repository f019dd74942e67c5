package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-mq/waybill/pkg/client"
	"github.com/waybill-mq/waybill/pkg/protocol"
)

// headerPrefix begins the request headers that become headers of the message,
// without it and in lower case.
const headerPrefix = "Waybill-Header-"

// passed are the request headers that become headers of the message under
// their own names.
var passed = []string{
	"content-type", protocol.HeaderCorrelation, protocol.HeaderTraceparent, protocol.HeaderTracestate, protocol.HeaderBaggage,
}

// once are the request headers, in lower case, of which a message takes one:
// which of two is meant nobody knows.
var once = map[string]bool{
	"nats-msg-id": true, "waybill-delay-ms": true, "waybill-deliver-at": true, "waybill-group": true, "waybill-priority": true,
	"content-type": true, protocol.HeaderCorrelation: true,
}

// ofMesh says whether a request header, of those that a message takes once, is
// one by which the mesh does something.
func ofMesh(name string) bool {
	name = strings.ToLower(name)
	return once[name] && name != "content-type" && name != protocol.HeaderCorrelation
}

// Publication is a message whose payload is the request's body.
type Publication struct {
	DedupID   string `header:"Nats-Msg-Id" doc:"A second publish with this id, to the same queue or topic within two minutes, has no effect."`
	DelayMs   int64  `header:"Waybill-Delay-Ms" minimum:"0" doc:"Deliver it this many milliseconds after now."`
	DeliverAt string `header:"Waybill-Deliver-At" doc:"Deliver it at this time: RFC 3339 with its zone, or milliseconds since 1970."`
	Group     string `header:"Waybill-Group" doc:"The message's group, for FIFO queues."`
	Priority  int    `header:"Waybill-Priority" minimum:"0" maximum:"255" doc:"The higher, the sooner, in a queue with priorities."`
	RawBody   []byte

	headers map[string]string
}

// Resolve reads the message's headers.
func (in *Publication) Resolve(ctx huma.Context) []error {
	in.headers = map[string]string{}
	for _, name := range passed {
		if value := ctx.Header(name); value != "" {
			in.headers[name] = value
		}
	}
	var errs []error
	given := map[string]int{}
	ctx.EachHeader(func(name, value string) {
		given[name]++
		if given[name] > 1 && once[strings.ToLower(name)] {
			errs = append(errs, problemOf(protocol.Errorf(protocol.CodeInvalidArgs, "the header %s is given twice: send one", name)))
		}
		if value == "" && ofMesh(name) {
			errs = append(errs, problemOf(protocol.Errorf(protocol.CodeInvalidArgs, "the header %s is empty: give it a value, or leave it out", name)))
		}
		name, ours := strings.CutPrefix(name, headerPrefix)
		if !ours {
			return
		}
		name = strings.ToLower(name)
		if _, twice := in.headers[name]; twice {
			errs = append(errs, problemOf(protocol.Errorf(protocol.CodeInvalidArgs, "header %.200q is given twice: a message's header has one value", name)))
		}
		in.headers[name] = value
	})
	return errs
}

func (in *Publication) message(to client.Destination) (client.Message, error) {
	at, err := parseTime(in.DeliverAt)
	return client.Message{
		To: to, Data: in.RawBody, Headers: in.headers, DedupID: in.DedupID,
		Delay: delay(in.DelayMs), DeliverAt: at,
		Group: in.Group, Priority: uint8(in.Priority),
	}, err
}

// delay is that of milliseconds, whose number may be too large for one.
func delay(ms int64) time.Duration {
	return time.Duration(min(ms, 2*protocol.MaxSchedule.Milliseconds())) * time.Millisecond
}

// parseTime reads a time as HeaderDeliverAt has it; "" is none.
func parseTime(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	headers := map[string][]string{protocol.HeaderDeliverAt: {text}}
	at, err := protocol.TakeSchedule(headers, time.Now())
	return at, err
}

type publishQueueInput struct {
	Execution string `path:"execution" doc:"The execution's id."`
	Route     string `path:"route" doc:"The route, such as parse or files.parse."`
	Publication
}

type publishTopicInput struct {
	Topic string `path:"topic" doc:"The topic, such as orders.created."`
	Publication
}

const publishDescription = "The payload is the body, byte for byte, of any content type. Request headers `Waybill-Header-<name>` become headers of the message " +
	"(without the prefix, in lower case); `content-type`, `x-correlation-id`, `traceparent`, `tracestate` and `baggage` do under their own names. " +
	"It is answered when the message is stored."

func (s *Service) messages(api huma.API) {
	tags := []string{"publish"}
	most := s.nc.MaxPayload()
	operation(api, huma.Operation{
		OperationID: "publish-to-queue", Method: http.MethodPost, Path: "/queues/{execution}/{route}/messages", Tags: tags,
		Summary: "Publish to a route of an execution", Description: publishDescription, MaxBodyBytes: most,
	}, func(ctx context.Context, in *publishQueueInput) (*answer[protocol.PublishAck], error) {
		return s.publish(ctx, client.Queue(in.Execution, in.Route), &in.Publication)
	})
	operation(api, huma.Operation{
		OperationID: "publish-to-topic", Method: http.MethodPost, Path: "/topics/{topic}/messages", Tags: tags,
		Summary: "Publish to a topic", Description: publishDescription + " Nobody subscribing is no error: listeners is 0.", MaxBodyBytes: most,
	}, func(ctx context.Context, in *publishTopicInput) (*answer[protocol.PublishAck], error) {
		return s.publish(ctx, client.Topic(in.Topic), &in.Publication)
	})
	for _, path := range []string{"/queues/{execution}/{route}/messages", "/topics/{topic}/messages"} {
		api.OpenAPI().Paths[apiPrefix+path].Post.RequestBody.Required = false // a payload may be empty
	}
}

func (s *Service) publish(ctx context.Context, to client.Destination, in *Publication) (*answer[protocol.PublishAck], error) {
	m, err := in.message(to)
	if err != nil {
		return nil, err
	}
	s.inSpan(ctx, &m)
	return s.published(ctx, m)
}

func (s *Service) published(ctx context.Context, m client.Message) (*answer[protocol.PublishAck], error) {
	results, err := s.client.PublishMany(ctx, []client.Message{m})
	if err != nil {
		return nil, err
	}
	return &answer[protocol.PublishAck]{*results[0].Receipt}, nil
}

module github.com/waybill-mq/waybill/test

go 1.26.0

require (
	github.com/waybill-mq/waybill/internal v0.0.0
	github.com/waybill-mq/waybill/pkg v0.0.0
)

replace github.com/waybill-mq/waybill/pkg => ../pkg

replace github.com/waybill-mq/waybill/internal => ../internal

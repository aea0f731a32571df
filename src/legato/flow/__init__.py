"""The values that pass between the stages, one file per arrow. Pure: no tensor, no device.

::

    Request --scheduler--> ScheduledBatch --plan--> ExecutionPlan --runner--> StepOutput --scheduler--> RequestUpdate
"""

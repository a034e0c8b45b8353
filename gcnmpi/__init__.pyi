from gcnmpi.api import graph as graph
from gcnmpi.api.inference import evaluate as evaluate
from gcnmpi.api.inference import infer as infer
from gcnmpi.api.inference import propagate as propagate
from gcnmpi.api.inference import score as score
from gcnmpi.api.inference import top as top
from gcnmpi.api.launching import RankError as RankError
from gcnmpi.api.launching import launch as launch
from gcnmpi.api.record import Run as Run
from gcnmpi.api.training import train as train
from gcnmpi.api.training import verify as verify
from gcnmpi.nn.network import Builder as Builder
from gcnmpi.nn.networks.stack import stack as stack
from gcnmpi.run.claims import Stopped as Stopped
from partition.errors import UserError as UserError

__version__: str

"""MPI, started as fedmpi needs it: every module of fedmpi imports MPI from here.

mpi4py reads its settings, and starts MPI, when mpi4py.MPI is first imported. So the settings have
to be made before that, whichever module of fedmpi comes first.
"""

import faulthandler
import os
import sys

import mpi4py

# Only the main thread calls MPI, and the lower thread level is the cheaper one.
mpi4py.rc.thread_level = "funneled"
# Started below: a library that does not fit its launcher may end the process without a good word.
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True

# Open MPI's component for windows over UCX fails, with an error on the screen, where there is no
# such network; ours are of shared memory alone.
os.environ.setdefault("OMPI_MCA_osc", "^ucx")

from mpi4py import MPI  # noqa: E402

from fedmpi.mpi import launcher  # noqa: E402

START_TIMEOUT = 600.0

if not MPI.Is_initialized():
    if launcher.survives_failures():
        # Between hosts these two return wrong sums after a rank has died.
        os.environ.setdefault("OMPI_MCA_coll", "^han,adapt")
        # Nobody else ends the job if a rank dies before MPI has started on all of them. MPI_Init
        # keeps Python's lock, so a thread of Python's could not.
        _said = sys.stderr if launcher.process_number() == 0 else open(os.devnull, "w")  # noqa: SIM115
        faulthandler.dump_traceback_later(START_TIMEOUT, file=_said, exit=True)
    if (warning := launcher.pmi_warning(MPI.get_vendor()[0])) is not None:
        print(f"fedmpi: {warning}", file=sys.stderr, flush=True)
    MPI.Init_thread(MPI.THREAD_FUNNELED)
    if launcher.survives_failures():
        faulthandler.cancel_dump_traceback_later()

import numpy as np
from tests.engine.programs import ADD_ONE, Aval, compiled, put, run

from phalanx.engine import buffers, profiler_session


def test_a_profile_holds_the_named_stretch(tmp_path):
    executable = compiled(ADD_ONE)
    session = profiler_session.start()
    with profiler_session.TraceMe("the_stretch_of_this_test", step=3):
        buffers.block_until_ready(run(executable, [put(np.ones(8, "f4"))], [Aval((8,), "f4")]))
    session.stop_and_export(str(tmp_path))
    (profile,) = tmp_path.rglob("*.xplane.pb")
    assert b"the_stretch_of_this_test" in profile.read_bytes()

import pytest


# The second pair drives some cells to the floor, epsilon / K.
@pytest.mark.parametrize(("lr_mu", "epsilon"), [(0.2, 0.001), (2.0, 0.1)])
def test_statement(agree, case, lr_mu, epsilon):
    setting, clients, options = case
    agree("localfedminmax", setting, clients, lr_mu=lr_mu, epsilon=epsilon, **options)


def test_with_a_client_for_each_group_it_is_fedminmax(run, same):
    """The floor aside: epsilon / K is another floor than epsilon."""
    options = {"lr_mu": 0.5, "epsilon": 0, "rounds": 5}
    found, fedminmax = (run(m, "SSG", 4, **options) for m in ("localfedminmax", "fedminmax"))
    same(found.theta(), fedminmax.theta())


def test_of_one_client_it_is_centralized(run, same):
    found = run("localfedminmax", "ESG", 1, lr_mu=0.5, epsilon=0.01)
    same(found.theta(), run("centralized", "ESG", 1, lr_mu=0.5, epsilon=0.01).theta())


def test_one_group(train, tmp_path):
    """Nothing to be fair between, but the cells are still the clients' own."""
    rows = [f"{i % 7},z,{i % 2}" for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join(["a,g,y", *rows]))
    data = ["--dataset", f"csv:{tmp_path / 'one.csv'}", "--target", "y", "--group", "g"]
    options = ["--clients", 3, "--rounds", 2, "--model", "logistic", "--dtype", "float64"]
    found = train(*data, *options, "--method", "localfedminmax", output="local")
    afl = train(*data, *options, "--method", "afl", output="afl")
    assert found.theta() == pytest.approx(afl.theta(), rel=1e-9)
